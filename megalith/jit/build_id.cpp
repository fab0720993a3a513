#include "megalith/jit/build_id.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>

#include "megalith/base/file.h"
#include "megalith/base/hash.h"

namespace megalith::jit {

namespace {

struct Search {
  uintptr_t address;  // of code in the object that is wanted
  std::string id;
};

// Reads the notes where the loader has mapped them; costs microseconds, whatever the size of the binary.
int visit(dl_phdr_info* object, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  bool contains = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && search->address >= begin && search->address < begin + segment.p_memsz)
      contains = true;
  }
  if (!contains) return 0;

  auto aligned = [](size_t size) { return (size + 3) & ~size_t{3}; };
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* bytes = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= segment.p_memsz;) {
      ElfW(Nhdr) note;
      std::memcpy(&note, bytes + at, sizeof note);
      const char* name = bytes + at + sizeof note;
      const char* content = name + aligned(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
        for (size_t k = 0; k < note.n_descsz; ++k)
          search->id += fmt::format("{:02x}", static_cast<unsigned char>(content[k]));
      at += sizeof note + aligned(note.n_namesz) + aligned(note.n_descsz);
    }
  }
  return 1;
}

std::string find_build_id() {
  Search search{reinterpret_cast<uintptr_t>(&build_id), ""};
  dl_iterate_phdr(visit, &search);
  if (!search.id.empty()) return search.id;
  Dl_info info;
  const bool shared = dladdr(reinterpret_cast<void*>(search.address), &info) && file_exists(info.dli_fname);
  MappedFile file(shared ? info.dli_fname : "/proc/self/exe");
  return hash_hex({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}

}  // namespace

const std::string& build_id() {
  static const std::string id = find_build_id();
  return id;
}

}  // namespace megalith::jit
