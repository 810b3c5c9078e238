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

/// Throws Error(invalid_argument) if the format of a rule is not "safetensors", "memmap", "tdz",
/// "pt" or "npz".
void check_rules(const FormatRules& rules);

/// An entry that will be written.
struct PlannedEntry {
  CheckpointEntry entry;
  TensorDict tree;              ///< content of the file; empty if the format is "json"
  std::string json;             ///< content of the file, if the format is "json"
  std::uint64_t num_bytes = 0;  ///< bytes of the tensors in `tree`, or of `json`
  bool has_tensors = false;
};

/// Chooses format and path of each entry of `state`. `where`: the step's folder, for messages.
/// Throws Error(unsupported) or Error(invalid_argument), naming the key, if the format of an entry
/// cannot store its content.
std::vector<PlannedEntry> plan_entries(const TensorDict& state, const FormatRules& rules,
                                       const std::string& where);

/// Returns the sum of num_bytes.
std::uint64_t bytes_of(const std::vector<PlannedEntry>& plan) noexcept;

/// Returns the entry of that name and rank, or null if there is none.
const CheckpointEntry* entry_of(const CheckpointInfo& info, const std::string& name,
                                std::optional<std::int64_t> rank);

/// The previous step. A new step gets hard links to those of its files that are unchanged.
struct EarlierStep {
  os::Directory folder;
  CheckpointInfo info;
  std::int64_t saved_ns = 0;  ///< modification time of the last file that the save wrote
  bool is_synced = false;     ///< its files are durable
};

/// Writes the entry into `folder`, which is still hidden. Returns the entry with its size and
/// checksum. Files of `earlier` (which may be null) are linked if they have equal checksums and
/// were not modified since they were saved. Files of safetensors and memmap are compared before
/// anything is written, other files after they are written. JSON files are never linked.
CheckpointEntry write_entry(const PlannedEntry& planned, os::Directory& folder,
                            const EarlierStep* earlier, bool durable, int num_threads,
                            Monitor* monitor);

/// Returns the entry, which is stored in `folder`, with its size and checksum.
CheckpointEntry measured(CheckpointEntry entry, const os::Directory& folder);

/// The folder that contains an entry, and its name there.
struct EntryPlace {
  os::Directory folder;
  std::string name;
};
/// Opens the folder of an entry's `path`, relative to a step's folder. Throws Error(file_not_found)
/// if a folder of the path is missing, Error(corrupt) if it is a symbolic link or not a folder.
EntryPlace place_of(const os::Directory& step_folder, const std::string& path);

/// Returns the size of all regular files below `folder`. Throws Error(corrupt) if there is anything
/// but files and folders.
std::uint64_t folder_bytes(const os::Directory& folder);

/// The size of an entry's files, and one checksum: of the header for safetensors and of the file of
/// checksums for memmap, which contain the block checksums; of the file's bytes for other formats.
struct Fingerprint {
  std::uint64_t num_bytes = 0;
  std::string checksum;
};
Fingerprint fingerprint(const os::Directory& step_folder, const CheckpointEntry& entry);

/// Hashes the stat of each file and folder of the entries: device, inode, modification time, size.
/// The result changes if a file is replaced or removed, or if a write changes its modification time
/// or size. Reads no content. The step's document is not included, because set_metrics() replaces
/// it. Throws only errors for which formats::is_problem_of_files() is false; others are part of the
/// hash.
std::uint64_t hash_of_stats(const os::Directory& step_folder, const CheckpointInfo& info);

/// Verifies an entry and adds its problems to `report`. Compares the block checksums of its tensors
/// only if `full`. An Error is a problem, too, unless formats::is_problem_of_files() is false for
/// it: then it is thrown.
void verify_entry(const os::Directory& folder, const Path& path, const CheckpointEntry& entry,
                  bool full, const VerifyOptions& options, Rank rank, VerifyReport& report);

/// Opens the entry lazily; reads a JSON entry. Throws Error(unsupported) for an unknown format.
TensorDict::Item open_entry(const Path& step_path, const CheckpointEntry& entry);

}  // namespace tenfold::checkpoint
