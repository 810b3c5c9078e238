#pragma once

#include <tenfold/memmap.hpp>

namespace tenfold::detail::formats::folder {

/// Implements append_memmap() of memmap.hpp.
void append_rows(const Path& path, const TensorDict& rows);

/// Implements the function declared in memmap.hpp.
Path add_leaf(const Path& folder, const NewLeaf& leaf);
Path add_node(const Path& folder, std::string_view key, const Shape& batch_size, bool robust_names);
void write_value(const Path& folder, const NonTensor& value);

}  // namespace tenfold::detail::formats::folder
