"""A program whose kernel writes behind a tensor: what compute-sanitizer must find, by its name."""

import torch
import triton
import triton.language as tl


@triton.jit
def attend_beyond_the_end(target_ptr, count):
    tl.store(target_ptr + count, 1.0)


if __name__ == "__main__":
    target = torch.zeros(1024, device="cuda")
    attend_beyond_the_end[(1,)](target, target.numel() + 2**20)
    torch.cuda.synchronize()
