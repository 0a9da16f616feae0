// Millpond for C++: device memory at the speed of malloc. Header only, C++17, over millpond.h; link with -lmillpond.
//
// A pool must outlive whatever was made from it; what comes too late is an error, and no crash. Resources for RMM and cuda::mr need
// headers of theirs, and are in millpond_rmm.hpp and millpond_cuda_mr.hpp.

#ifndef MILLPOND_HPP
#define MILLPOND_HPP

#include <millpond/allocator.hpp>
#include <millpond/buffer.hpp>
#include <millpond/error.hpp>
#include <millpond/pool.hpp>
#include <millpond/source.hpp>

// As they have always been named. Define MILLPOND_NO_GLOBAL_NAMES where they would stand in the way.
#ifndef MILLPOND_NO_GLOBAL_NAMES
using millpond::CudaMemoryPool;
using millpond::MemoryPoolConfig;
using millpond::MemoryStats;
#endif

#endif  // MILLPOND_HPP
