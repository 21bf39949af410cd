#!/usr/bin/python3
"""Work for the service in a container of test-ansible.sh: three files that grow beside each other by direct writes until /test/enough exists, and
short files that are in pieces before a runway comes. What was written is known by its SHA-256, in /test/sums at the end."""
import hashlib
import mmap
import os
import time

BLOCK = 4096
buffer = mmap.mmap(-1, 16 * BLOCK)


class Growing:
    def __init__(self, path):
        self.path, self.sum, self.blocks = path, hashlib.sha256(), 0
        # Programs get no runway: without a mode, Python would make files that may be executed.
        self.file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600)

    def grow(self, blocks):
        data = b"".join(hashlib.sha256(f"{self.path} {self.blocks + n}".encode()).digest() * (BLOCK // 32) for n in range(blocks))
        buffer[: len(data)] = data
        # A view ends at the right byte; the mapping is aligned, as direct writes want it.
        written = os.write(self.file, memoryview(buffer)[: len(data)])
        if written != len(data):
            raise OSError(f"{self.path}: {written} of {len(data)} bytes were written")
        self.sum.update(data)
        self.blocks += blocks

    def close(self):
        os.fsync(self.file)
        os.close(self.file)
        return f"{self.sum.hexdigest()}  {self.path}\n"


growing = [Growing(f"/srv/file-{n}") for n in range(3)]
sums, turn = [], 0
while not os.path.exists("/test/enough"):
    for file in growing:
        if file.blocks * BLOCK < 128 << 20:
            file.grow(16)
    if turn % 30 == 0 and turn < 1500:
        short = [Growing(f"/srv/short-{turn}-{n}") for n in range(6)]
        for _ in range(40):
            for file in short:
                file.grow(1)
        sums += [file.close() for file in short]
    turn += 1
    time.sleep(0.1)
sums += [file.close() for file in growing]
with open("/test/sums.new", "w") as result:
    result.writelines(sums)
os.rename("/test/sums.new", "/test/sums")
