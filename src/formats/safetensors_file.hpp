#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/format.hpp"
#include "formats/leaf_writer.hpp"
#include "formats/progress.hpp"
#include "formats/safetensors_source.hpp"
#include "formats/safetensors_tree.hpp"
#include "os/file.hpp"

namespace tenfold {

// One file of tensors, written and verified: what the single file and the shards share.

/// Writes a whole file: `tensors` in the reference's order with `metadata` before them. With
/// checksums `metadata` gets one more member, "tenfold_xxh3": 16 hexadecimal digits of the hash of
/// the header (all of it, its length included, with these digits as zeros), a space, and 16 digits
/// of each 16 MiB block of each tensor in the order of the file.
void write_safetensors_file(os::File& file,
                            const std::vector<const SafetensorsPlan::Tensor*>& tensors,
                            SafetensorsMetadata metadata, const WriteRequest& request,
                            Progress& progress);

/// The bytes that write_safetensors_file() would write before the data. Throws Error(unsupported)
/// beyond the limit of 100,000,000 bytes.
std::string safetensors_header_of(const std::vector<const SafetensorsPlan::Tensor*>& tensors,
                                  const SafetensorsMetadata& metadata);

/// The text of "tenfold_xxh3" for those tensors, all digits zero.
std::string blank_checksums(const std::vector<const SafetensorsPlan::Tensor*>& tensors);

/// Where the value of the member "tenfold_xxh3" starts in a JSON text, with room for 16 digits;
/// npos if it has none.
std::size_t find_checksums(std::string_view json) noexcept;

/// XXH3 of `text` with the 16 digits at `digits_at` as zeros.
std::uint64_t hash_with_blank_digits(std::string text, std::size_t digits_at);

/// Counts the leaves, bytes and checksums of an opened file, reports a header that differs from
/// its checksum, and adds the data's blocks to `blocks`.
void plan_verification(const OpenedSafetensors& opened, VerifyReport& report,
                       std::vector<BlockCheck>& blocks);

/// `message` of an error about `path` as a problem: path, part and what are told apart.
Problem problem_of(const std::string& message, const Path& path);

}  // namespace tenfold
