#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.hpp"
#include "formats/safetensors/leaf_source.hpp"
#include "formats/safetensors/tree.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::safetensors {

// Functions that plan and write one file of tensors, and verify one or more.

/// The content of one file.
struct FilePlan {
  Plan plan;
  std::vector<const Plan::Tensor*> tensors;  ///< in file order
};
/// Plans one file for the tree. Passes `notes` to make_plan(). If `notes` is false, also omits the
/// order of the keys. Throws like make_plan().
FilePlan plan_file(const TensorDict& tree, bool notes);

/// Writes a whole file: a header with `metadata`, then `tensors` in the given order. With
/// checksums, adds the member "tenfold_xxh3" (json_checksums.hpp) to the metadata. Its first
/// checksum covers the whole header, including the eight bytes of the length. Throws like
/// header_of() before anything is written, and like write_leaves().
void write_file(os::File& file, const std::vector<const Plan::Tensor*>& tensors, Metadata metadata,
                const WriteRequest& request, Progress& progress);

/// Returns the header for these tensors and exactly this metadata, including the eight bytes of its
/// length. Throws Error(unsupported) if it exceeds the format's limit of 100,000,000 bytes.
std::string header_of(const std::vector<const Plan::Tensor*>& tensors, const Metadata& metadata);

/// Appends spaces to a header until it has `size_bytes` bytes, including the eight bytes of its
/// length, and updates these eight bytes.
void pad_header(std::string& header, std::uint64_t size_bytes);

/// Returns the value of "tenfold_xxh3" for these tensors, with zeros in place of all digits.
std::string blank_checksums(const std::vector<const Plan::Tensor*>& tensors);

/// True if `saved` equals the file that write_file() would write with checksums. Compares the
/// header except its own checksum, and the stored checksums of the blocks with those of the tensors
/// in `file`. Reads no tensor in `saved`. Stops at the first block that differs.
bool is_saved_as(const os::File& saved, const FilePlan& file, int num_threads, Progress& progress);

/// Returns the stored block checksums of the tensors of a file. Returns an empty map if the file
/// has no checksums, or if their number does not fit the tensors. Adds a problem to the report if
/// their number does not fit, or if the header does not match its checksum.
ChecksumsByLeaf tensor_checksums(const OpenedFile& opened, VerifyReport& report);

/// Verifies the files that `open` returns: counts their leaves, bytes and checksums, and compares
/// headers, blocks and boxes with their checksums. `open` may add problems to the report. Blocks
/// and boxes that cannot be read are problems, as in check_blocks() and check_boxes(). Any other
/// error becomes a problem if add_problem() accepts it, with the path `path` if the error names no
/// file; otherwise it is thrown.
VerifyReport verify_file(const Path& path, const VerifyRequest& request,
                         const std::function<std::vector<OpenedFile>(VerifyReport&)>& open);

}  // namespace tenfold::detail::formats::safetensors
