#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>

#include "checkpoint/step.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::checkpoint {

using FormatRules = std::vector<std::pair<std::string, std::string>>;

/// Throws Error(invalid_argument) for a format that entries cannot have.
void check_rules(const FormatRules& rules);

/// An entry that is about to be written.
struct PlannedEntry {
  CheckpointEntry entry;
  TensorDict tree;              ///< what its file holds; empty for JSON
  std::string json;             ///< its bytes, if its format is "json"
  std::uint64_t num_bytes = 0;  ///< of tensors and values
  bool has_tensors = false;
};

/// Decides where each entry of `state` goes. `where`: the step's folder, for messages.
/// Throws Error(unsupported), naming the key, for what its format cannot hold.
std::vector<PlannedEntry> plan_entries(const TensorDict& state, const FormatRules& rules,
                                       const std::string& where);

/// Bytes of tensors and values.
std::uint64_t bytes_of(const std::vector<PlannedEntry>& plan) noexcept;

/// The entry of that name, of that rank; null if there is none.
const CheckpointEntry* entry_of(const CheckpointInfo& info, const std::string& name,
                                std::optional<std::int64_t> rank);

/// The step before, whose files get second names in a new one where they are equal.
struct EarlierStep {
  os::Directory folder;
  CheckpointInfo info;
  std::int64_t saved_ns = 0;  ///< modification time of the last file that the save wrote
  bool is_synced = false;     ///< it is on the device
};

/// Writes the entry into `folder`, which is hidden as yet. Returns it with size and checksum.
/// `earlier`, which may be null: what is equal there by its checksums, and was not modified since
/// it was saved, is linked. The files of safetensors and memmap are compared before they are
/// written; what else is one file is written first.
CheckpointEntry write_entry(const PlannedEntry& planned, os::Directory& folder,
                            const EarlierStep* earlier, bool durable, int num_threads,
                            Monitor* monitor);

/// The entry, which lies in `folder`, with size and checksum.
CheckpointEntry measured(CheckpointEntry entry, const os::Directory& folder);

/// The folder that an entry lies in, and its name there.
struct EntryPlace {
  os::Directory folder;
  std::string name;
};
/// `path` of an entry, below a step's folder. Symbolic links are not followed. Throws
/// Error(file_not_found) if a folder on the way is missing.
EntryPlace place_of(const os::Directory& step_folder, const std::string& path);

/// Bytes of all regular files below; anything else is Error(corrupt).
std::uint64_t folder_bytes(const os::Directory& folder);

/// Size of the files of an entry, and a checksum that stands for all its bytes.
struct Fingerprint {
  std::uint64_t num_bytes = 0;
  std::string checksum;
};
Fingerprint fingerprint(const os::Directory& step_folder, const CheckpointEntry& entry);

/// Adds what is wrong with an entry to `report`; every checksum of its own only if `full`.
void verify_entry(const os::Directory& folder, const Path& path, const CheckpointEntry& entry,
                  bool full, const VerifyOptions& options, Rank rank, VerifyReport& report);

/// The entry, opened lazily.
TensorDict::Item open_entry(const Path& step_path, const CheckpointEntry& entry);

}  // namespace tenfold::checkpoint
