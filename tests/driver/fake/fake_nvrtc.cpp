// A stand-in for NVRTC that compiles for ever: it makes the file that FAKE_NVRTC_STARTED names, and comes back no more.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

using Program = void*;
using Code = int;

}  // namespace

extern "C" {

Code nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
const char* nvrtcGetErrorString(Code) { return "words of the stand-in"; }
Code nvrtcCreateProgram(Program*, const char*, const char*, int, const char* const*, const char* const*) { return 0; }
Code nvrtcDestroyProgram(Program*) { return 0; }
Code nvrtcCompileProgram(Program, int, const char* const*) {
  if (const char* const started = std::getenv("FAKE_NVRTC_STARTED"))
    if (std::FILE* const file = std::fopen(started, "w")) std::fclose(file);
  for (;;) ::pause();
}
Code nvrtcGetProgramLogSize(Program, size_t*) { return 1; }
Code nvrtcGetProgramLog(Program, char*) { return 1; }
Code nvrtcGetPTXSize(Program, size_t*) { return 1; }
Code nvrtcGetPTX(Program, char*) { return 1; }
Code nvrtcGetCUBINSize(Program, size_t*) { return 1; }
Code nvrtcGetCUBIN(Program, char*) { return 1; }

}  // extern "C"
