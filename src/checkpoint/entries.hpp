#pragma once

#include <cstdint>
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

/// Writes the entry into `folder`, which is hidden as yet. Returns it with size and checksum.
CheckpointEntry write_entry(const PlannedEntry& planned, const os::Directory& folder, bool durable,
                            int num_threads, Monitor* monitor);

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

/// Replaces files of the new entry by hard links to those of the old one where they are equal.
/// Neither is open. What cannot be linked stays a file of its own.
void share_unchanged(const os::Directory& step_folder, const CheckpointEntry& entry,
                     const os::Directory& old_step_folder, const CheckpointEntry& old_entry);

/// Adds what is wrong with an entry to `report`; every checksum of its own only if `full`. Of an
/// entry of all ranks each compares those of its share of the tensors.
void verify_entry(const os::Directory& folder, const Path& path, const CheckpointEntry& entry,
                  bool full, const VerifyOptions& options, Rank rank, VerifyReport& report);

/// The entry, opened lazily.
TensorDict::Item open_entry(const Path& step_path, const CheckpointEntry& entry);

}  // namespace tenfold::checkpoint
