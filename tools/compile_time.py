#!/usr/bin/env python3
"""What NVRTC takes for a kernel, in CPU seconds, its phases beside them; and for each body how much less it takes without it.

    megalith compile models/shapes/Qwen3-8B --target cuda:sm_90a -b 512 --load-format dummy -o /tmp/kernel
    compile_time.py /tmp/kernel --bodies

The library is the one that command.txt names. Needs no GPU. Bodies share code, so shares do not add up.
"""

import argparse
import ctypes
import os
import re
import resource
import sys
import tempfile


class Compiler:
    """NVRTC with the options that a kernel was compiled with."""

    def __init__(self, folder):
        with open(os.path.join(folder, "command.txt"), encoding="utf-8") as file:
            text = file.read()
        library = re.search(r"\((/\S*libnvrtc\S*)\)", text)
        if not library:
            sys.exit(f"compile_time: {folder}/command.txt names no libnvrtc: want a kernel that NVRTC compiled")
        self.nvrtc = ctypes.CDLL(library.group(1))
        self.options = [word for line in text.splitlines() for word in line.split() if word.startswith("--")]

    def seconds(self, source):
        """CPU seconds, and milliseconds by phase."""
        with tempfile.TemporaryDirectory() as folder:
            times = os.path.join(folder, "times.csv")
            options = [option.encode() for option in [*self.options, f"--time={times}"]]
            program = ctypes.c_void_p()
            self.nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
            begin = resource.getrusage(resource.RUSAGE_SELF)
            code = self.nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
            end = resource.getrusage(resource.RUSAGE_SELF)
            self.nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
            if code != 0:
                sys.exit(f"compile_time: NVRTC ends with {code}; megalith compile says why")
            with open(times, encoding="utf-8") as file:
                phases = dict(re.findall(r"[^,\n]*, ([^,\n]*), (\d+), ms", file.read()))
        return end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime, phases


def bodies_of(source):
    """Where the switch between bodies stands, and their names."""
    begin = source.index("static void run_task(")
    end = source.index("\n}\n", begin)
    return begin, end, re.findall(r"return (\w+)\(task\);", source[begin:end])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="what megalith compile wrote (-o)")
    parser.add_argument("--bodies", action="store_true", help="also without each body")
    parser.add_argument("-r", "--repetitions", type=int, default=2, help="of each; the least counts (2)")
    arguments = parser.parse_args()
    compiler = Compiler(arguments.folder)
    with open(os.path.join(arguments.folder, "kernel.cu"), encoding="utf-8") as file:
        source = file.read()

    def least(text):
        return min((compiler.seconds(text) for _ in range(arguments.repetitions)), key=lambda result: result[0])

    whole, phases = least(source)
    print(f"{whole:.2f} CPU seconds: {', '.join(f'{name} {ms} ms' for name, ms in phases.items())}", flush=True)
    if not arguments.bodies:
        return
    begin, end, names = bodies_of(source)
    for name in names:
        switch = source[begin:end].replace(f"return {name}(task);", "return;")
        without, _ = least(source[:begin] + switch + source[end:])
        print(f"{whole - without:6.2f} less without {name}", flush=True)


if __name__ == "__main__":
    main()
