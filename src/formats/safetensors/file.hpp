#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.hpp"
#include "formats/safetensors/source.hpp"
#include "formats/safetensors/tree.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::safetensors {

// One file of tensors, written and verified: what the single file and the shards share.

/// What becomes one file.
struct FilePlan {
  Plan plan;
  std::vector<const Plan::Tensor*> tensors;  ///< in the order of the file
};
/// Throws Error(unsupported), naming the key, for what safetensors cannot hold.
FilePlan plan_file(const TensorDict& tree, bool notes);

/// Writes a whole file: `tensors` in the reference's order with `metadata` before them. With
/// checksums `metadata` gets one more member, "tenfold_xxh3" (json_checksums.hpp); the document
/// that it speaks of is the whole header, its length included.
void write_file(os::File& file, const std::vector<const Plan::Tensor*>& tensors, Metadata metadata,
                const WriteRequest& request, Progress& progress);

/// The bytes that write_safetensors_file() would write before the data. Throws Error(unsupported)
/// beyond the limit of 100,000,000 bytes.
std::string header_of(const std::vector<const Plan::Tensor*>& tensors, const Metadata& metadata);

/// Makes a header that long, by spaces at its end.
void pad_header(std::string& header, std::uint64_t size_bytes);

/// The text of "tenfold_xxh3" for those tensors, all digits zero.
std::string blank_checksums(const std::vector<const Plan::Tensor*>& tensors);

/// True if `saved` is what write_file() would write, with checksums, by those that it has. Hashes
/// the tensors up to the first block that differs.
bool is_saved_as(const os::File& saved, const FilePlan& file, int num_threads, Progress& progress);

/// The checksums of a file's tensors; what its header lacks or contradicts is added to the report.
ChecksumsByLeaf tensor_checksums(const OpenedFile& opened, VerifyReport& report);

/// Verifies the files that `open` gives: counts their leaves, bytes and checksums, compares headers
/// and blocks with their checksums. `open` adds what else it finds; what it throws as corrupt or
/// unsupported becomes a problem of `path`.
VerifyReport verify_file(const Path& path, const VerifyRequest& request,
                         const std::function<std::vector<OpenedFile>(VerifyReport&)>& open);

}  // namespace tenfold::detail::formats::safetensors
