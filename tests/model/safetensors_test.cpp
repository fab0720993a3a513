// Weights: what is written comes back, and every kind of damage is named.
#include "megalith/model/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "megalith/base/error.h"
#include "model/scratch.h"

namespace megalith {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
WeightTensor tensor(const std::string& name, DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  return {name, dtype, std::move(shape), std::as_bytes(std::span(values))};
}

// A file from its header's text and its data, `pad` false leaving the data wherever the header ends.
std::string raw_file(std::string header, const std::string& data, bool pad = true) {
  while (pad && header.size() % 8 != 0) header += ' ';
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

class SafetensorsTest : public ScratchTest {
 protected:
  // The message that opening a file of this content ends in.
  std::string damage(const std::string& content) {
    write("model.safetensors", content);
    return user_error([&] { Weights::open(folder()); });
  }
  std::string damage_header(const std::string& header, const std::string& data = std::string(64, 'x')) {
    return damage(raw_file(header, data));
  }
};

TEST_F(SafetensorsTest, RoundTrip) {
  const std::vector<uint16_t> half = {0x3f80, 0x4000, 0x4040};
  const std::vector<float> single = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> wide = {-1};
  const std::vector<int32_t> word = {7, 8};
  const WeightTensor tensors[] = {tensor("b.half", DType::bf16, {3}, half),
                                  tensor("a \"quoted\" é", DType::f32, {2, 3}, single),
                                  tensor("scalar", DType::i64, {}, wide), tensor("word", DType::i32, {1, 2, 1}, word),
                                  tensor("empty", DType::f16, {4, 0}, std::vector<uint16_t>{})};
  safetensors_write(folder() + "/model.safetensors", tensors);
  for (const std::string& path : {folder(), folder() + "/model.safetensors"}) {
    const Weights weights = Weights::open(path);
    EXPECT_THAT(weights.names(), ElementsAre("a \"quoted\" é", "b.half", "empty", "scalar", "word"));
    EXPECT_EQ(weights.total_bytes(), 6 + 24 + 8 + 8);
    for (const WeightTensor& want : tensors) {
      const WeightTensor& got = weights.get(want.name);
      EXPECT_EQ(got.dtype, want.dtype);
      EXPECT_EQ(got.shape, want.shape);
      ASSERT_EQ(got.bytes.size(), want.bytes.size());
      EXPECT_TRUE(std::equal(got.bytes.begin(), got.bytes.end(), want.bytes.begin()));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(got.bytes.data()) % dtype_bytes(got.dtype), 0u);
    }
  }
}

TEST_F(SafetensorsTest, SpansSurviveAMove) {
  const std::vector<float> values = {1, 2};
  safetensors_write(folder() + "/model.safetensors", std::vector{tensor("x", DType::f32, {2}, values)});
  Weights first = Weights::open(folder());
  const std::byte* data = first.get("x").bytes.data();
  const Weights second = std::move(first);
  EXPECT_EQ(second.get("x").bytes.data(), data);
  EXPECT_EQ(std::memcmp(data, values.data(), 8), 0);
}

TEST_F(SafetensorsTest, WriterChecksSizes) {
  const std::vector<float> values = {1, 2};
  EXPECT_THAT(user_error([&] {
                safetensors_write(folder() + "/x.safetensors", std::vector{tensor("x", DType::f32, {3}, values)});
              }),
              HasSubstr("tensor \"x\" has 8 bytes, which are not shape [3] of f32"));
}

TEST_F(SafetensorsTest, MisalignedDataIsCopied) {
  write("model.safetensors", raw_file(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}} )",
                                      std::string("\0\0\0\x80\x3f", 5), false));
  const Weights weights = Weights::open(folder());
  const WeightTensor& x = weights.get("x");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.bytes.data()) % 4, 0u);
  EXPECT_EQ(element_load(x.bytes.data(), DType::f32, 0), 1.0);
}

TEST_F(SafetensorsTest, MetadataAndHolesAreFine) {
  write("model.safetensors", raw_file(R"({"__metadata__":{"format":"pt"},
      "x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                                      std::string(16, '\0')));
  EXPECT_THAT(Weights::open(folder()).names(), ElementsAre("x", "y"));
}

TEST_F(SafetensorsTest, MissingTensorNamesItsNeighbours) {
  const std::vector<float> values = {1};
  safetensors_write(folder() + "/model.safetensors",
                    std::vector{tensor("model.layers.0.mlp.up_proj.weight", DType::f32, {1}, values),
                                tensor("lm_head.weight", DType::f32, {1}, values)});
  const Weights weights = Weights::open(folder());
  EXPECT_EQ(weights.find("nothing"), nullptr);
  EXPECT_THAT(user_error([&] { weights.get("model.layers.0.mlp.up_porj.weight"); }),
              testing::AllOf(HasSubstr("no tensor \"model.layers.0.mlp.up_porj.weight\" among the 2 of " + folder()),
                             HasSubstr("(near: \"model.layers.0.mlp.up_proj.weight\")")));
}

TEST_F(SafetensorsTest, UnsupportedDTypeIsRefusedWhenAskedFor) {
  write("model.safetensors", raw_file(R"({"q":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},
      "x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                      std::string(8, '\0')));
  const Weights weights = Weights::open(folder());
  EXPECT_NE(weights.find("x"), nullptr);
  EXPECT_THAT(user_error([&] { weights.find("q"); }),
              HasSubstr("tensor \"q\" is of dtype F8_E4M3, supported are BF16"));
}

TEST_F(SafetensorsTest, NothingThere) {
  EXPECT_THAT(user_error([&] { Weights::open(folder()); }), HasSubstr("want model.safetensors or"));
  EXPECT_THAT(user_error([&] { Weights::open(folder() + "/none"); }), HasSubstr("no such file or folder"));
}

TEST_F(SafetensorsTest, DamagedLength) {
  EXPECT_THAT(damage(""), HasSubstr("has 0 bytes, too few"));
  EXPECT_THAT(damage("1234567"), HasSubstr("has 7 bytes, too few"));
  EXPECT_THAT(damage(std::string("\x05\0\0\0\0\0\0\0{}", 10)), HasSubstr("a header of 5 bytes but has only 10"));
  EXPECT_THAT(damage(std::string(16, '\xff')), HasSubstr("want at most 100000000: it is not a safetensors file"));
  EXPECT_THAT(damage("version https://git-lfs.github.com/spec/v1\noid sha256:00"), HasSubstr("git lfs pull"));
}

TEST_F(SafetensorsTest, DamagedHeader) {
  EXPECT_THAT(damage_header("{"), HasSubstr("is not JSON, near byte"));
  EXPECT_THAT(damage_header("\xff{}"), HasSubstr("is not JSON"));
  EXPECT_THAT(damage_header("[]"), HasSubstr("is an array of 0, want an object"));
  EXPECT_THAT(damage_header(std::string(100, '[')), HasSubstr("nests deeper than 64 levels"));
  EXPECT_THAT(damage_header(R"({"x":3})"), HasSubstr("\"x\" is 3, want an object"));
  EXPECT_THAT(damage_header(R"({"x":{}})"), HasSubstr("\"x\" lacks \"shape\""));
  EXPECT_THAT(damage_header(R"({"x":{"shape":[1],"dtype":"F32"}})"), HasSubstr("\"x\" lacks \"data_offsets\""));
  EXPECT_THAT(damage_header(R"({"x":{"shape":[1],"data_offsets":[0,4]}})"), HasSubstr("\"x\" lacks \"dtype\""));
}

TEST_F(SafetensorsTest, DuplicateName) {
  EXPECT_THAT(damage_header(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                                "x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
              HasSubstr("the key \"x\" stands twice in one object"));
}

TEST_F(SafetensorsTest, DamagedShape) {
  auto shape = [&](const std::string& text) {
    return damage_header(R"({"x":{"dtype":"F32","shape":)" + text + R"(,"data_offsets":[0,4]}})");
  };
  EXPECT_THAT(shape("[2]"), HasSubstr("\"x\" has 4 bytes of data, but shape [2] of F32 wants 8"));
  EXPECT_THAT(shape("[-1]"), HasSubstr("\"x.shape[0]\" is -1, want 0 to"));
  EXPECT_THAT(shape("[1.5]"), HasSubstr("\"x.shape[0]\" is 1.5, want a whole number"));
  EXPECT_THAT(shape("4"), HasSubstr("\"x.shape\" is 4, want an array"));
  EXPECT_THAT(shape("[18446744073709551615]"), HasSubstr("\"x.shape[0]\" is 18446744073709551615, want"));
  EXPECT_THAT(shape("[4611686018427387904,4]"), HasSubstr("wants more than fit into 63 bits"));
  EXPECT_THAT(shape("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"), HasSubstr("has 17 dimensions, want at most 16"));
}

TEST_F(SafetensorsTest, DamagedOffsets) {
  auto offsets = [&](const std::string& text) {
    return damage_header(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":)" + text + "}}");
  };
  EXPECT_THAT(offsets("[64,68]"), HasSubstr("data_offsets [64, 68], but the file holds 64 bytes of data"));
  EXPECT_THAT(offsets("[4,0]"), HasSubstr("data_offsets [4, 0]"));
  EXPECT_THAT(offsets("[-4,0]"), HasSubstr("\"x.data_offsets[0]\" is -4"));
  EXPECT_THAT(offsets("[0]"), HasSubstr("not [begin, end]"));
  EXPECT_THAT(offsets("[0,9223372036854775807]"), HasSubstr("but the file holds 64"));
}

TEST_F(SafetensorsTest, Overlap) {
  EXPECT_THAT(damage_header(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                                "y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
              HasSubstr("tensors \"x\" and \"y\" overlap: [0, 8) and [4, 8)"));
}

class ShardsTest : public SafetensorsTest {
 protected:
  void SetUp() override {
    SafetensorsTest::SetUp();
    const std::vector<float> values = {1};
    safetensors_write(folder() + "/1.safetensors", std::vector{tensor("a", DType::f32, {1}, values)});
    safetensors_write(folder() + "/2.safetensors", std::vector{tensor("b", DType::f32, {1}, values)});
  }
  std::string open_index(const std::string& map) {
    write("model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + map + "}");
    return user_error([&] { Weights::open(folder()); });
  }
};

TEST_F(ShardsTest, Index) {
  EXPECT_EQ(open_index(R"({"a":"1.safetensors","b":"2.safetensors"})"), "");
  const Weights weights = Weights::open(folder());
  EXPECT_THAT(weights.names(), ElementsAre("a", "b"));
  EXPECT_EQ(element_load(weights.get("b").bytes.data(), DType::f32, 0), 1.0);
}

TEST_F(ShardsTest, DamagedIndex) {
  EXPECT_EQ(open_index(R"({"a":"2.safetensors"})"), "");
  EXPECT_THAT(user_error([&] { Weights::open(folder()).get("a"); }),
              HasSubstr("says that tensor \"a\" is in 2.safetensors, but it is not"));
  EXPECT_THAT(open_index("[]"), HasSubstr("\"weight_map\" is an array of 0, want an object"));
  EXPECT_THAT(open_index(R"({"a":7})"), HasSubstr("\"weight_map.a\" is 7, want a string"));
  EXPECT_THAT(open_index(R"({"a":"3.safetensors","b":"4.safetensors"})"),
              HasSubstr("names 2 files, none of which is there"));
}

// Names of files are as hostile as the rest.
TEST_F(ShardsTest, NamesThatLeadElsewhere) {
  for (const char* name :
       {"../1.safetensors", "/etc/1.safetensors", "sub/1.safetensors", "passwd", "", ".", "..", "1.safetensors\\u0000",
        "secret\\u0000.safetensors", "1.safetensors/", "1.safetensors/../../1.safetensors"})
    EXPECT_THAT(open_index(fmt::format(R"({{"a":"{}"}})", name)),
                testing::AllOf(HasSubstr("\"weight_map.a\" is \""), HasSubstr("want the name of a .safetensors file")))
        << name;
}

TEST_F(ShardsTest, WhatIsNoFile) {
  std::filesystem::create_directory(folder() + "/folder.safetensors");
  ASSERT_EQ(mkfifo((folder() + "/pipe.safetensors").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", folder() + "/zero.safetensors");
  for (const char* name : {"folder.safetensors", "pipe.safetensors", "zero.safetensors"}) {
    write("model.safetensors.index.json", fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name));
    EXPECT_THAT([&] { Weights::open(folder()); },
                testing::ThrowsMessage<SystemError>(HasSubstr(fmt::format("{} is not a regular file", name))));
  }
}

// The index decides: copies of a tensor in other shards are old ones, whichever stands first.
TEST_F(ShardsTest, TheIndexChoosesAmongCopies) {
  const std::vector<float> one = {1}, two = {2};
  safetensors_write(folder() + "/1.safetensors",
                    std::vector{tensor("a", DType::f32, {1}, one), tensor("b", DType::f32, {1}, one)});
  safetensors_write(folder() + "/2.safetensors",
                    std::vector{tensor("a", DType::f32, {1}, two), tensor("b", DType::f32, {1}, two)});
  ASSERT_EQ(open_index(R"({"a":"2.safetensors","b":"1.safetensors"})"), "");
  const Weights weights = Weights::open(folder());
  EXPECT_EQ(element_load(weights.get("a").bytes.data(), DType::f32, 0), 2.0);
  EXPECT_EQ(element_load(weights.get("b").bytes.data(), DType::f32, 0), 1.0);
  EXPECT_THAT(weights.names(), ElementsAre("a", "b"));
}

// What the index does not name is taken where it is, if that is one place.
TEST_F(ShardsTest, TensorsThatTheIndexDoesNotName) {
  const std::vector<float> one = {1}, two = {2};
  safetensors_write(folder() + "/1.safetensors",
                    std::vector{tensor("a", DType::f32, {1}, one), tensor("c", DType::f32, {1}, one),
                                tensor("d", DType::f32, {1}, one)});
  safetensors_write(folder() + "/2.safetensors",
                    std::vector{tensor("b", DType::f32, {1}, two), tensor("c", DType::f32, {1}, two)});
  ASSERT_EQ(open_index(R"({"a":"1.safetensors","b":"2.safetensors"})"), "");
  const Weights weights = Weights::open(folder());
  EXPECT_EQ(element_load(weights.get("d").bytes.data(), DType::f32, 0), 1.0);
  EXPECT_THAT(user_error([&] { weights.get("c"); }), HasSubstr("tensor \"c\" is in two files"));
  EXPECT_THAT(weights.names(), ElementsAre("a", "b", "d"));
}

// Shards and tensors that nobody asks for need not be there, and files that the index does not name are not opened.
TEST_F(ShardsTest, WhatNobodyNeedsMayBeAbsent) {
  write("9.safetensors", "not weights at all");
  ASSERT_EQ(open_index(R"({"a":"1.safetensors","b":"2.safetensors","x":"1.safetensors","y":"3.safetensors"})"), "");
  const Weights weights = Weights::open(folder());
  EXPECT_THAT(weights.names(), ElementsAre("a", "b"));
  EXPECT_EQ(weights.find("y"), nullptr);
  EXPECT_THAT(user_error([&] { weights.get("x"); }),
              HasSubstr("says that tensor \"x\" is in 1.safetensors, but it is not"));
  EXPECT_THAT(user_error([&] { weights.get("y"); }),
              HasSubstr("says that tensor \"y\" is in 3.safetensors, which is not there: download it"));
}

TEST_F(SafetensorsTest, Renamed) {
  const std::vector<float> one = {1}, two = {2};
  safetensors_write(folder() + "/model.safetensors",
                    std::vector{tensor("a", DType::f32, {1}, one), tensor("b", DType::f32, {1}, two)});
  Weights weights = Weights::open(folder());
  EXPECT_THAT(user_error([&] { weights.rename([](const std::string&) { return "same"; }); }),
              HasSubstr("has the tensor \"same\" twice: as \"a\" and as \"b\""));
  weights = Weights::open(folder());
  weights.rename([](const std::string& name) { return name == "a" ? "" : "x"; });
  EXPECT_THAT(weights.names(), ElementsAre("x"));
  EXPECT_EQ(weights.get("x").name, "b");
}

// As a draft model's weights stand beside those of the other model.
TEST_F(SafetensorsTest, JoinTakesInAnotherModel) {
  const std::vector<float> one = {1}, two = {2};
  safetensors_write(folder() + "/model.safetensors",
                    std::vector{tensor("a", DType::f32, {1}, one), tensor("b", DType::f32, {1}, two)});
  Weights weights = Weights::open(folder());
  EXPECT_THAT(user_error([&] { weights.join(Weights::open(folder())); }), HasSubstr("both have the tensor \"a\""));
  weights = Weights::open(folder());
  {
    Weights others = Weights::open(folder());
    others.rename([](const std::string& name) { return "draft." + name; });
    weights.join(std::move(others));
  }
  EXPECT_THAT(weights.names(), ElementsAre("a", "b", "draft.a", "draft.b"));
  EXPECT_EQ(*reinterpret_cast<const float*>(weights.get("draft.b").bytes.data()), 2);
  EXPECT_EQ(weights.total_bytes(), 16);
  weights.check_files();
}

// What comes instead of safetensors, and what to do about it.
TEST_F(SafetensorsTest, WeightsInOtherForms) {
  const std::pair<const char*, const char*> kForms[] = {
      {"pytorch_model.bin", "save_pretrained"},
      {"pytorch_model-00001-of-00002.bin", "save_pretrained"},
      {"consolidated.00.pth", "convert_llama_weights_to_hf"},
      {"consolidated.safetensors", "Mistral's own form"},
      {"model-Q4_K_M.gguf", "GGUF"},
      {"adapter_model.safetensors", "merge"},
      {"model-00001-of-00002.safetensors", "model.safetensors.index.json is missing"},
      {"weights.safetensors", "call it model.safetensors"}};
  EXPECT_THAT(user_error([&] { Weights::open(folder()); }),
              testing::AllOf(HasSubstr("no weights in"), testing::Not(HasSubstr("there is"))));
  for (const auto& [name, advice] : kForms) {
    write(name, "");
    EXPECT_THAT(
        user_error([&] { Weights::open(folder()); }),
        testing::AllOf(HasSubstr("no weights in"), HasSubstr(fmt::format("there is {}", name)), HasSubstr(advice)));
    std::filesystem::remove(folder() + "/" + name);
  }
}

// Another process may cut the file short at any time: an error, wherever that happens, and never a signal.
TEST_F(SafetensorsTest, AFileThatIsCutShort) {
  const std::vector<float> values(100'000, 1);
  const std::string path = folder() + "/model.safetensors";
  safetensors_write(path, std::vector{tensor("x", DType::f32, {100'000}, values)});
  const auto bytes = std::filesystem::file_size(path);
  for (const uintmax_t left : {bytes - 1, bytes / 2, uintmax_t{10}, uintmax_t{0}}) {
    safetensors_write(path, std::vector{tensor("x", DType::f32, {100'000}, values)});
    const Weights weights = Weights::open(folder());
    weights.check_files();
    std::filesystem::resize_file(path, left);
    double sum = 0;
    for (int64_t i = 0; i < 100'000; ++i) sum += element_load(weights.get("x").bytes.data(), DType::f32, i);
    EXPECT_LT(sum, 100'000) << "the rest reads as zeros";
    EXPECT_THAT([&] { weights.check_files(); },
                testing::ThrowsMessage<SystemError>(HasSubstr(path + " has become shorter while it was in use")));
  }
  // Written again in place it is as long as it was, but what was read is not what it holds.
  safetensors_write(path, std::vector{tensor("x", DType::f32, {100'000}, values)});
  const Weights weights = Weights::open(folder());
  const std::string content = file_read(path);
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(element_load(weights.get("x").bytes.data(), DType::f32, 99'999), 0);
  std::ofstream(path, std::ios::binary) << content;
  EXPECT_THAT([&] { weights.check_files(); }, testing::ThrowsMessage<SystemError>(HasSubstr("has become shorter")));
}

}  // namespace
}  // namespace megalith
