#include "megalith/jit/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/temporary_folder.h"
#include "jit/fake_compiler.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"

namespace megalith::jit {
namespace {

namespace fs = std::filesystem;
using megalith::test::EnvironmentVariable;
using megalith::test::message_of;
using megalith::test::TemporaryFolder;
using test::FakeCompiler;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kLarge = int64_t{1} << 30;
// Debug information, which only builds with sanitizers ask for, names the directory in which the compiler ran.
#ifdef MEGALITH_SANITIZE
constexpr bool kHasDebugInfo = true;
#else
constexpr bool kHasDebugInfo = false;
#endif
constexpr const char* kCompile = "exec c++ \"$@\"";

BuildRequest answer(int value) {
  return {.name = "answer",
          .source = "extern \"C\" int answer();\nint answer() { return " + std::to_string(value) + "; }\n",
          .flags = {"-O1", "-fPIC", "-Werror"}};
}
int ask(const Build& build) { return build.library.function<int()>("answer")(); }

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(folder)) names.push_back(item.path().filename());
  return names;
}

class BuildTest : public testing::Test {
 protected:
  TemporaryFolder folder;
  KernelCache cache{folder / "cache", kLarge};
  EnvironmentVariable own_compiler{"MEGALITH_CXX", nullptr};
  EnvironmentVariable always{"MEGALITH_ALWAYS_COMPILE", nullptr};
};

TEST_F(BuildTest, CompilesOnceThenLoads) {
  FakeCompiler fake(folder.path, kCompile);
  own_compiler.set(fake.path.c_str());
  const Build first = build_shared_object(answer(42), cache);
  EXPECT_FALSE(first.cache_hit);
  EXPECT_GT(first.compile_ms, 0);
  EXPECT_EQ(ask(first), 42);
  EXPECT_EQ(fake.count(), 2) << "the version, and the kernel";

  const Build second = build_shared_object(answer(42), cache);
  EXPECT_TRUE(second.cache_hit);
  EXPECT_EQ(second.compile_ms, 0);
  EXPECT_EQ(ask(second), 42);
  EXPECT_EQ(fake.count(), 2) << "a hit starts no process";
  EXPECT_EQ(first.key, second.key);
}

TEST_F(BuildTest, AHitTakesLessThanFiveMilliseconds) {
  build_shared_object(answer(42), cache);
  double best = 1e9;
  for (int i = 0; i < 20; ++i) best = std::min(best, build_shared_object(answer(42), cache).total_ms);
  RecordProperty("hit_us", static_cast<int>(best * 1000));
#ifndef MEGALITH_SANITIZE
  EXPECT_LT(best, 5);
#endif
}

TEST_F(BuildTest, TheEntryCanBeReadAndRepeatedByHand) {
  const Build build = build_shared_object(answer(42), cache);
  EXPECT_EQ(file_read(build.directory + "/kernel.cpp"), answer(42).source);
  const std::string binary = file_read(build.directory + "/kernel.so");
  ASSERT_EQ(std::system(("cd " + build.directory + " && sh command.txt").c_str()), 0);
  EXPECT_TRUE(file_read(build.directory + "/kernel.so") == binary || kHasDebugInfo);
}

TEST_F(BuildTest, EverythingThatMattersIsInTheKey) {
  FakeCompiler fake(folder.path, kCompile);
  own_compiler.set(fake.path.c_str());
  const std::string key = build_key(answer(1), cache);
  EXPECT_EQ(build_key(answer(1), cache), key);
  EXPECT_NE(build_key(answer(2), cache), key);
  BuildRequest flags = answer(1), more = answer(1), named = answer(1);
  flags.flags.push_back("-DX");
  EXPECT_NE(build_key(flags, cache), key);
  more.more.push_back({"x.h", ""});
  EXPECT_NE(build_key(more, cache), key);
  named.name = "another name for the same source";
  EXPECT_EQ(build_key(named, cache), key);
  file_write_atomic(fake.path, "#!/bin/sh\necho fake compiler 1.1\n");
  ::chmod(fake.path.c_str(), 0755);
  EXPECT_NE(build_key(answer(1), cache), key);
}

TEST_F(BuildTest, AlwaysCompileIgnoresTheEntryAndReplacesIt) {
  FakeCompiler fake(folder.path, kCompile);
  own_compiler.set(fake.path.c_str());
  build_shared_object(answer(42), cache);
  always.set("1");
  EXPECT_FALSE(build_shared_object(answer(42), cache).cache_hit);
  EXPECT_EQ(fake.count("kernel.cpp"), 2);
  always.set(nullptr);
  EXPECT_TRUE(build_shared_object(answer(42), cache).cache_hit);
}

TEST_F(BuildTest, SeveralUnitsAndHeaders) {
  BuildRequest request{.name = "units",
                       .source = "#include \"two.h\"\nextern \"C\" int answer() { return two() + 1; }",
                       .more = {{"two.h", "int two();"}, {"two.cpp", "#include \"two.h\"\nint two() { return 2; }"}}};
  EXPECT_EQ(ask(build_shared_object(request, cache)), 3);
  EXPECT_TRUE(build_shared_object(request, cache).cache_hit);
}

// ---- damage --------------------------------------------------------------------------------------

TEST_F(BuildTest, ADeletedFileMeansCompilingAgain) {
  const Build first = build_shared_object(answer(42), cache);
  for (const char* file : {"kernel.so", "kernel.cpp", "command.txt", "info.json"}) {
    fs::remove(first.directory + "/" + file);
    testing::internal::CaptureStderr();
    const Build again = build_shared_object(answer(42), cache);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("is damaged"));
    EXPECT_FALSE(again.cache_hit) << file;
    EXPECT_EQ(ask(again), 42);
  }
}

TEST_F(BuildTest, ATruncatedObjectMeansCompilingAgain) {
  const std::string directory = build_shared_object(answer(42), cache).directory;
  fs::resize_file(directory + "/kernel.so", 5000);
  testing::internal::CaptureStderr();
  const Build again = build_shared_object(answer(42), cache);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("kernel.so has 5000 bytes"));
  EXPECT_FALSE(again.cache_hit);
  EXPECT_EQ(ask(again), 42);
}

TEST_F(BuildTest, AnEntryThatIsWholeButDoesNotLoadMeansCompilingAgain) {
  // Not held: while it is loaded, the loader returns what it has under that path.
  const std::string key = build_shared_object(answer(42), cache).key;
  const std::string workspace = cache.workspace(key);
  file_write_atomic(workspace + "/kernel.so", "made for a machine that is gone");
  cache.store(key, "answer", workspace);
  testing::internal::CaptureStderr();
  const Build again = build_shared_object(answer(42), cache);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("it is made again"));
  EXPECT_EQ(ask(again), 42);
}

// ---- a compiler that fails -------------------------------------------------------------------------

TEST_F(BuildTest, ACompileErrorShowsCommandLogAndSource) {
  FakeCompiler fake(folder.path,
                    "i=0; while [ $i -lt 30 ]; do echo \"kernel.cpp:$i: error\"; i=$((i+1)); done; exit 4");
  own_compiler.set(fake.path.c_str());
  const std::string key = build_key(answer(42), cache);
  const std::string place = folder / "cache/failed/" + key;
  const std::string message = message_of<SystemError>([&] { build_shared_object(answer(42), cache); });
  std::string log;
  for (int i = 0; i < 20; ++i) log += "kernel.cpp:" + std::to_string(i) + ": error\n";
  EXPECT_THAT(message,
              AllOf(HasSubstr("[jit] compiling \"answer\" failed: " + fake.path + " exited with code 4\n" + log +
                              "... 10 more lines\n"),
                    HasSubstr("the source is " + place + "/kernel.cpp, the whole log log.txt beside it"),
                    HasSubstr("to repeat: cd " + place + " && " + fake.path + " -O1 -fPIC -Werror -march=native")));
  EXPECT_EQ(file_read(place + "/kernel.cpp"), answer(42).source);
  EXPECT_THAT(file_read(place + "/log.txt"), HasSubstr("kernel.cpp:29: error"));
  EXPECT_TRUE(names_in(folder / "cache/kernels").empty()) << "a failure leaves no temporaries";
}

TEST_F(BuildTest, ARealCompilersErrorArrives) {
  BuildRequest request = answer(42);
  request.source = "int x = nothing;";
  EXPECT_THAT(message_of<SystemError>([&] { build_shared_object(request, cache); }),
              HasSubstr("'nothing' was not declared in this scope"));
}

TEST_F(BuildTest, ACompilerThatIsKilledIsSaidSo) {
  FakeCompiler fake(folder.path, "kill -9 $$");
  own_compiler.set(fake.path.c_str());
  EXPECT_THAT(message_of<SystemError>([&] { build_shared_object(answer(42), cache); }),
              HasSubstr("was killed by signal 9 (Killed): the system does so when memory runs out"));
}

// A driver tells of its parts, and of what the system denied them.
TEST_F(BuildTest, ALimitThatACompilerMetIsExplained) {
  struct Case {
    const char *log, *meaning;
  };
  for (const Case& one :
       {Case{"g++: fatal error: Killed signal terminated program cc1plus", "memory runs out"},
        Case{"g++: fatal error: CPU time limit exceeded signal terminated program cc1plus", ""},
        Case{"as: BFD: kernel.so: File too large", "file"},
        Case{"virtual memory exhausted: Cannot allocate memory", "free some"},
        Case{"g++: fatal error: cannot execute 'cc1plus': vfork: Resource temporarily unavailable", "threads"},
        Case{"LLVM ERROR: out of memory", "free some"}}) {
    FakeCompiler fake(folder.path, std::string("echo \"") + one.log + "\"; exit 1");
    own_compiler.set(fake.path.c_str());
    const std::string message = message_of<SystemError>([&] { build_shared_object(answer(42), cache); });
    EXPECT_THAT(message, AllOf(HasSubstr("exited with code 1"), HasSubstr(one.log)));
    const size_t begin = message.find("exited with code 1");
    EXPECT_THAT(message.substr(begin, message.find('\n') - begin), HasSubstr(one.meaning)) << one.log;
  }
}

TEST_F(BuildTest, WhatIsToBeRepeatedCanBePasted) {
  KernelCache odd(folder / "a b;$(touch x)", kLarge);
  FakeCompiler fake(folder.path, "exit 1");
  own_compiler.set(fake.path.c_str());
  EXPECT_THAT(
      message_of<SystemError>([&] { build_shared_object(answer(42), odd); }),
      HasSubstr("to repeat: cd '" + folder.path + "/a b;$(touch x)/failed/" + build_key(answer(42), odd) + "' && "));
}

// ---- compilations that do not end -------------------------------------------------------------------

TEST_F(BuildTest, AKilledBuildLeavesNoCompilerAndTheNextRunClearsUp) {
  FakeCompiler fake(folder.path, "echo $$ > pid; sleep 600 & echo $! >> pid; wait");
  own_compiler.set(fake.path.c_str());
  const std::string key = build_key(answer(42), cache);
  const pid_t child = fork();
  if (child == 0) {
    build_shared_object(answer(42), cache);
    _exit(1);
  }
  std::string note;
  auto is_begun = [&] {
    if (!file_exists(folder / "cache/kernels")) return false;
    for (const std::string& name : names_in(folder / "cache/kernels")) note = folder / "cache/kernels/" + name + "/pid";
    return file_exists(note) && std::ranges::count(file_read(note), '\n') == 2;
  };
  for (int i = 0; i < 1000 && !is_begun(); ++i) usleep(10000);
  ASSERT_TRUE(is_begun());
  const std::string pids = file_read(note);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const pid_t compiler = std::stoi(pids), its_child = std::stoi(pids.substr(pids.find('\n')));
  auto runs = [](pid_t pid) {
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    if (!file_exists(path)) return false;
    const std::string status = stream_read(path, 4096);
    return status.find(") Z") == std::string::npos;
  };
  for (int i = 0; i < 500 && (runs(compiler) || runs(its_child)); ++i) usleep(10000);
  EXPECT_FALSE(runs(compiler));
  EXPECT_FALSE(runs(its_child));
  EXPECT_FALSE(cache.find(key)) << "half an entry";
  own_compiler.set(nullptr);
  EXPECT_EQ(ask(build_shared_object(answer(42), cache)), 42);
  EXPECT_THAT(names_in(folder / "cache/kernels"), testing::ElementsAre(build_key(answer(42), cache)));
}

// ---- files that are no code ---------------------------------------------------------------------------

// Runs `body` in a child process with a tmpfs of its own at `place`; kNoMount where that is not allowed.
constexpr int kNoMount = 77;
template <class Body>
int with_mount(const std::string& place, unsigned long flags, const char* options, Body&& body);

TEST_F(BuildTest, ACacheWithoutExecutionIsReplacedByATemporaryOne) {
  directory_create(folder / "noexec", 0700);
  FakeCompiler fake(folder.path, kCompile);
  own_compiler.set(fake.path.c_str());
  const int code = with_mount(folder / "noexec", MS_NOEXEC, "mode=0700", [&] {
    KernelCache cannot(folder / "noexec", kLarge);
    testing::internal::CaptureStderr();
    const Build build = build_shared_object(answer(42), cannot);
    const std::string warnings = testing::internal::GetCapturedStderr();
    if (ask(build) != 42) return 1;
    if (warnings.find("is mounted noexec: no code can be run from there); kernels of this run go to") ==
            std::string::npos ||
        std::ranges::count(warnings, '\n') != 1)
      return fputs(warnings.c_str(), stderr), 2;
    if (build.directory.starts_with(folder / "noexec")) return 3;
    if (fake.count("kernel.cpp") != 1) return 4;  // compiled where it can be run, and nowhere else
    if (!build_shared_object(answer(42), cannot).cache_hit) return 5;
    return 0;
  });
  if (code == kNoMount) GTEST_SKIP() << "[SKIP] may not mount a tmpfs here";
  EXPECT_EQ(code, 0);
}

// An entry from before the file system was mounted anew is left for the day when it is not.
TEST_F(BuildTest, AnEntryThatIsWholeAndCannotBeRunIsKept) {
  directory_create(folder / "noexec", 0700);
  const int code = with_mount(folder / "noexec", 0, "mode=0700", [&] {
    KernelCache cannot(folder / "noexec", kLarge);
    const std::string entry = build_shared_object(answer(42), cannot).directory;
    if (mount(nullptr, (folder / "noexec").c_str(), nullptr, MS_REMOUNT | MS_NOEXEC, "mode=0700") != 0) return kNoMount;
    if (!maps_no_code(entry + "/kernel.so")) return 1;
    const std::string message = message_of<SystemError>([&] { Library::load(entry + "/kernel.so"); });
    if (message.find("is it mounted noexec?") == std::string::npos) return fputs(message.c_str(), stderr), 2;
    testing::internal::CaptureStderr();
    const Build build = build_shared_object(answer(42), cannot);
    const std::string warnings = testing::internal::GetCapturedStderr();
    if (ask(build) != 42 || build.cache_hit) return 3;
    if (warnings.find("is it mounted noexec?); kernels of this run go to") == std::string::npos)
      return fputs(warnings.c_str(), stderr), 4;
    return file_exists(entry + "/kernel.so") ? 0 : 5;
  });
  if (code == kNoMount) GTEST_SKIP() << "[SKIP] may not mount a tmpfs here";
  EXPECT_EQ(code, 0);
}

TEST_F(BuildTest, ACompilerThatWritesNothingIsSaidSo) {
  for (const std::string action : {"exit 0", ": > kernel.so"}) {
    FakeCompiler fake(folder.path, action);
    own_compiler.set(fake.path.c_str());
    EXPECT_THAT(message_of<SystemError>([&] { build_shared_object(answer(42), cache); }),
                AllOf(HasSubstr("exited with code 0, but wrote no kernel.so: is it a C++ compiler"),
                      HasSubstr("to repeat: cd " + (folder / "cache/failed/"))))
        << action;
    EXPECT_TRUE(cache.list().empty()) << action;
  }
}

// ---- a cache that cannot be written ------------------------------------------------------------------

TEST_F(BuildTest, ACacheThatCannotBeCreatedIsReplacedByATemporaryOne) {
  file_write_atomic(folder / "file", "");
  KernelCache impossible(folder / "file/cache", kLarge);
  testing::internal::CaptureStderr();
  const Build first = build_shared_object(answer(42), impossible);
  EXPECT_EQ(ask(first), 42);
  EXPECT_FALSE(first.cache_hit);
  EXPECT_TRUE(build_shared_object(answer(42), impossible).cache_hit) << "found in the temporary one";
  EXPECT_EQ(ask(build_shared_object(answer(43), impossible)), 43);
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, HasSubstr("megalith: warning: the kernel cache " + folder.path +
                                  "/file/cache cannot be used (cannot create the directory"));
  EXPECT_EQ(std::ranges::count(warnings, '\n'), 1) << warnings;
}

TEST_F(BuildTest, ACompilerWithoutDiskSpaceWorksInATemporaryDirectory) {
  FakeCompiler fake(folder.path, "case \"$PWD\" in " + folder.path +
                                     "*) echo 'final link failed: No space left on device'; exit 1;; esac\n" +
                                     kCompile);
  own_compiler.set(fake.path.c_str());
  testing::internal::CaptureStderr();
  const Build build = build_shared_object(answer(42), cache);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("cannot be used (No space left on device); kernels of this run go to"));
  EXPECT_EQ(ask(build), 42);
  EXPECT_TRUE(names_in(folder / "cache/kernels").empty());
}

// Runs `body` in a child process, which may exit without running the parent's cleanup; returns its exit code.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (const std::exception& error) { fprintf(stderr, "child: %s\n", error.what()); }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

template <class Body>
int with_mount(const std::string& place, unsigned long flags, const char* options, Body&& body) {
  return in_child([&] {
    // A name space of our own, so that the mount goes with this process.
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return kNoMount;
    mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (mount("none", place.c_str(), "tmpfs", flags, options) != 0) return kNoMount;
    return body();
  });
}

TEST_F(BuildTest, AFullDiskCostsAWarningNotTheResult) {
  directory_create(folder / "small");
  directory_create(folder / "temporary");
  EnvironmentVariable temporary("TMPDIR", folder / "temporary");
  // Too small for the source, and then large enough for it but not for the object.
  for (const char* size : {"size=16k", "size=44k"}) {
    BuildRequest request = answer(42);
    request.source += "/*" + std::string(20000, '*') + "*/";
    const int code = with_mount(folder / "small", 0, size, [&] {
      KernelCache full(folder / "small", kLarge);
      testing::internal::CaptureStderr();
      const Build build = build_shared_object(request, full);
      const std::string warnings = testing::internal::GetCapturedStderr();
      if (ask(build) != 42) return 1;
      if (warnings.find("No space left on device") == std::string::npos) return fputs(warnings.c_str(), stderr), 2;
      if (build.directory.starts_with(folder / "small")) return 3;
      if (!names_in(folder / "small/kernels").empty()) return 4;
      if (!build_shared_object(request, full).cache_hit) return 5;
      return 0;
    });
    if (code == kNoMount) GTEST_SKIP() << "[SKIP] may not mount a small tmpfs here";
    EXPECT_EQ(code, 0) << size;
  }
}

// ---- many processes ----------------------------------------------------------------------------------

TEST_F(BuildTest, EightProcessesCompileOnceThoughOneIsKilledInTheMiddle) {
  // Slow enough that all eight are waiting when the first is killed.
  FakeCompiler fake(folder.path, "sleep 1\n" + std::string(kCompile));
  own_compiler.set(fake.path.c_str());
  build_key(answer(42), cache);  // so that the version is known, and each further call is a compilation
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      int code = 1;
      try {
        const Build build = build_shared_object(answer(42), cache);
        code = ask(build) == 42 ? 0 : 2;
        file_write_atomic(folder / ("so." + std::to_string(getpid())), file_read(build.directory + "/kernel.so"));
      } catch (const std::exception& error) { fprintf(stderr, "child: %s\n", error.what()); }
      _exit(code);
    }
    children.push_back(child);
  }
  // The first line is the question for the version, asked by this process.
  for (int i = 0; i < 1000 && fake.count("kernel.cpp") == 0; ++i) usleep(10000);
  ASSERT_EQ(fake.count("kernel.cpp"), 1);
  const std::string calls = file_read(fake.calls);
  const pid_t holder = std::stoi(calls.substr(calls.find('\n') + 1));
  ASSERT_THAT(children, testing::Contains(holder));
  kill(holder, SIGKILL);

  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (child == holder) {
      EXPECT_TRUE(WIFSIGNALED(status));
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << child;
    }
  }
  EXPECT_EQ(fake.count("kernel.cpp"), 2) << "once by the one that was killed, once by its successor";
  EXPECT_THAT(names_in(folder / "cache/kernels"), testing::ElementsAre(build_key(answer(42), cache)));
  EXPECT_TRUE(names_in(folder / "cache/locks").empty());
  const std::string binary = file_read(folder / ("cache/kernels/" + build_key(answer(42), cache) + "/kernel.so"));
  for (pid_t child : children) {
    if (child != holder) { EXPECT_TRUE(file_read(folder / ("so." + std::to_string(child))) == binary) << child; }
  }
}

TEST_F(BuildTest, TheSameSourceGivesTheSameBytes) {
  KernelCache other(folder / "other", kLarge);
  const Build a = build_shared_object(answer(42), cache), b = build_shared_object(answer(42), other);
  EXPECT_FALSE(b.cache_hit);
  EXPECT_TRUE(file_read(a.directory + "/kernel.so") == file_read(b.directory + "/kernel.so") || kHasDebugInfo);
}

// ---- as a stage ---------------------------------------------------------------------------------------

int run_pipeline(Pipeline& pipeline, const KernelCache& cache, int value) {
  const std::string source = pipeline.stage(
      {"emit", "kernel.cpp"}, [&] { return answer(value).source; }, [](const std::string& text) { return text; },
      [](const std::string& text) { return text; }, nullptr);
  return ask(build_shared_object(pipeline, {.name = "toy", .source = source}, cache));
}

TEST_F(BuildTest, TheListenerHearsAMissThenAHit) {
  std::vector<CompileReport> reports;
  PipelineOptions options;
  options.listener.finished = [&](const CompileReport& report) { reports.push_back(report); };
  for (int i = 0; i < 2; ++i) {
    Pipeline pipeline("toy", options);
    EXPECT_EQ(run_pipeline(pipeline, cache, 42), 42);
    pipeline.finish();
  }
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_FALSE(reports[0].cache_hit);
  EXPECT_EQ(reports[0].stages.back().from, StageFrom::computed);
  EXPECT_GT(reports[0].stages.back().ms, 0);
  EXPECT_TRUE(reports[1].cache_hit);
  EXPECT_EQ(reports[1].stages.back().from, StageFrom::cache);
  EXPECT_LT(reports[1].total_ms, reports[0].total_ms);
}

TEST_F(BuildTest, TheEditedSourceIsWhatRuns) {
  EnvironmentVariable dump("MEGALITH_DUMP", folder / "dump");
  {
    Pipeline pipeline("toy");
    EXPECT_EQ(run_pipeline(pipeline, cache, 42), 42);
  }
  EXPECT_THAT(file_read(folder / "dump/toy/command.txt"), HasSubstr("kernel.cpp"));
  EXPECT_TRUE(file_exists(folder / "dump/toy/kernel.so"));
  // What a user does: copy the dump, edit it, run again.
  directory_create(folder / "mine");
  file_write_atomic(folder / "mine/kernel.cpp", answer(7).source);
  EnvironmentVariable edited("MEGALITH_OVERRIDE", folder / "mine");
  Pipeline pipeline("toy");
  EXPECT_EQ(run_pipeline(pipeline, cache, 42), 7);
}

TEST_F(BuildTest, TheEditedObjectIsWhatRuns) {
  const Build seven = build_shared_object(answer(7), cache);
  directory_create(folder / "mine/toy");
  fs::copy_file(seven.directory + "/kernel.so", folder / "mine/toy/kernel.so");
  Pipeline pipeline("toy", {.override_directory = folder / "mine"});
  EXPECT_EQ(run_pipeline(pipeline, cache, 42), 7);
  EXPECT_EQ(pipeline.finish().stages.back().from, StageFrom::override_file);

  file_write_atomic(folder / "mine/toy/kernel.so", "nonsense");
  Pipeline broken("toy", {.override_directory = folder / "mine"});
  EXPECT_THAT(
      message_of<UserError>([&] { run_pipeline(broken, cache, 42); }),
      HasSubstr("[jit] the override " + folder.path + "/mine/toy/kernel.so of stage \"assemble\" does not load: "));
}

}  // namespace
}  // namespace megalith::jit
