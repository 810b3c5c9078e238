#pragma once

/// tenfold: PyTorch's data on disk as memory-mapped trees of tensors, without pickle.
/// The chapters, in reading order:

// clang-format off: reading order
#include <tenfold/error.hpp>       // what can go wrong
#include <tenfold/dtype.hpp>       // element types
#include <tenfold/buffer.hpp>      // bytes and their owner
#include <tenfold/tensor.hpp>      // strided views of a buffer
#include <tenfold/value.hpp>       // JSON values
#include <tenfold/leaf.hpp>        // a tensor in memory or on disk
#include <tenfold/tensordict.hpp>  // the tree
#include <tenfold/io.hpp>          // open, load, save, verify, convert, load_into
#include <tenfold/inspect.hpp>     // select a part, statistics, values as text
#include <tenfold/version.hpp>     // the version of this library
// clang-format on
