#pragma once

/// tenfold: PyTorch's data on disk as memory-mapped trees of tensors, without pickle. All headers
/// except those for LibTorch (<tenfold/torch.hpp>), in reading order:

// clang-format off: reading order
#include <tenfold/error.hpp>       // the exception class
#include <tenfold/warnings.hpp>    // the handler for warnings
#include <tenfold/dtype.hpp>       // element types
#include <tenfold/buffer.hpp>      // bytes and their owner
#include <tenfold/tensor.hpp>      // strided views of a buffer
#include <tenfold/value.hpp>       // JSON values
#include <tenfold/leaf.hpp>        // a tensor in memory or on disk
#include <tenfold/tensordict.hpp>  // the tree
#include <tenfold/io.hpp>          // open, load, save, verify, convert, load_into
#include <tenfold/memmap.hpp>      // folders that change
#include <tenfold/consolidated.hpp>  // the files of tensordict's consolidate
#include <tenfold/archive.hpp>     // folders in one file
#include <tenfold/snapshot.hpp>    // the folders of torchsnapshot
#include <tenfold/checkpoint_manager.hpp>  // the steps of a training, and their retention
#include <tenfold/sharded_writer.hpp>      // one tree that several processes write
#include <tenfold/read_boxes.hpp>  // parts of tensors
#include <tenfold/inspect.hpp>     // selection, statistics, values as strings
#include <tenfold/diff.hpp>        // the differences between two trees
#include <tenfold/bench.hpp>       // reading speed on this machine
#include <tenfold/scan.hpp>        // the globals named by pickles in a file
#include <tenfold/permutation.hpp>   // random permutations that are computed on demand
#include <tenfold/schema.hpp>        // the columns of a data set
#include <tenfold/batch.hpp>         // rows of a data set, copied
#include <tenfold/dataset.hpp>       // the rows of a tree, and views of them
#include <tenfold/parts.hpp>         // data sets of parts, which several hosts write
#include <tenfold/arrow.hpp>         // the rows as a stream of Arrow's record batches
#include <tenfold/batch_loader.hpp>  // batches, epoch after epoch
#include <tenfold/accumulate.hpp>    // batches grouped by optimizer step
#include <tenfold/ingest.hpp>        // data sets from text files
#include <tenfold/mapped_dict.hpp>   // dictionaries on disk
#include <tenfold/sparse_matrix.hpp>   // sparse matrices
#include <tenfold/sparse_builder.hpp>  // sparse matrices from coordinates in any order
#include <tenfold/state_mapper.hpp>    // maps from states to rows of numbers
#include <tenfold/version.hpp>     // the version of this library
// clang-format on
