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
/// cannot store its content; Error(invalid_argument) if the name of an entry is not UTF-8.
std::vector<PlannedEntry> plan_entries(const TensorDict& state, const FormatRules& rules,
                                       const std::string& where);

/// Returns the sum of num_bytes.
std::uint64_t bytes_of(const std::vector<PlannedEntry>& plan) noexcept;

/// Returns the entry of `info` with this name and rank, or null if there is none. A `rank` of
/// nullopt selects an entry that belongs to all ranks.
const CheckpointEntry* entry_of(const CheckpointInfo& info, const std::string& name,
                                std::optional<std::int64_t> rank);

/// The previous step. A save may create hard links to its files instead of writing equal files.
struct EarlierStep {
  os::Directory folder;
  CheckpointInfo info;
  std::int64_t saved_ns = 0;  ///< modification time of the last file that the save wrote
  bool is_synced = false;     ///< its files are durable
};

/// Writes the entry into `folder`, the hidden folder of the new step. Returns the entry with its
/// size and checksum.
///
/// If `earlier` is not null, its entry of the same name, rank and format may have a file with an
/// equal checksum that was not modified after the save. The new file then becomes a hard link to
/// that file, if link_unchanged() can create one. For safetensors and memmap, the checksums are
/// compared before the new file is written, for other formats afterwards. JSON files are never
/// linked.
CheckpointEntry write_entry(const PlannedEntry& planned, os::Directory& folder,
                            const EarlierStep* earlier, bool durable, int num_threads,
                            Monitor* monitor);

/// Returns `entry` with the size and checksum of its files in `folder`.
CheckpointEntry measured(CheckpointEntry entry, const os::Directory& folder);

/// The folder that contains an entry, and its name there.
struct EntryPlace {
  os::Directory folder;
  std::string name;
};
/// Opens the folder that contains the entry at `path`, which is relative to the step's folder.
/// Throws Error(file_not_found) if a parent folder of the entry is missing, Error(corrupt) if a
/// parent is a symbolic link or not a folder.
EntryPlace place_of(const os::Directory& step_folder, const std::string& path);

/// Returns the total size in bytes of all files below `folder`. Throws Error(corrupt) if `folder`
/// contains anything but regular files and folders.
std::uint64_t folder_bytes(const os::Directory& folder);

/// The total size of an entry's files, and one checksum. For safetensors, it is the checksum of the
/// header, and for memmap, of the file of checksums, because these contain the checksums of all
/// blocks. For other formats, it is the checksum of the whole file.
struct Fingerprint {
  std::uint64_t num_bytes = 0;
  std::string checksum;
};
Fingerprint fingerprint(const os::Directory& step_folder, const CheckpointEntry& entry);

/// Hashes the stat of each file and folder of the entries: device, inode, modification time, size.
/// The result changes if a file is replaced or removed, or if a write changes its modification time
/// or size. Reads no content. The step's document is not included, because set_metrics() replaces
/// it. If an entry cannot be read, hashes the word "unreadable" instead of its stat. Throws only
/// errors for which formats::is_problem_of_files() is false.
std::uint64_t hash_of_stats(const os::Directory& step_folder, const CheckpointInfo& info);

/// Verifies an entry and adds its problems to `report`. Compares the block checksums of its tensors
/// only if `full`. Also adds each Error for which formats::is_problem_of_files() is true to the
/// report, and throws other errors.
void verify_entry(const os::Directory& folder, const Path& path, const CheckpointEntry& entry,
                  bool full, const VerifyOptions& options, Rank rank, VerifyReport& report);

/// Opens an entry: reads a JSON entry, and opens other entries lazily. Throws Error(unsupported)
/// for an unknown format.
TensorDict::Item open_entry(const Path& step_path, const CheckpointEntry& entry);

}  // namespace tenfold::checkpoint
