#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>
#include <tenfold/error.hpp>

#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::checkpoint {

/// A step whose document (checkpoint.json) can be parsed.
struct Step {
  CheckpointInfo info;
  std::string folder_name;
  os::FileInfo document;  ///< stat of checkpoint.json; changes if the file is replaced
  /// False if the checksum of the document does not match. Then the lineage and the seq may be
  /// wrong, so the lineage of the step is unknown.
  bool has_valid_document = true;
};

/// A folder that has the name of a step but is not a valid step. Its document is missing, damaged,
/// not readable, of another step, or of a newer version.
struct UnreadableStep {
  std::int64_t step = 0;  ///< the number in the name of the folder
  Error problem;          ///< file_not_found if the document is missing
  bool is_step = true;    ///< false if the document is missing or that of another step
  std::string folder_name;
};

/// The steps that a directory contained when it was read, in ascending order without duplicates.
class Listing {
 public:
  explicit Listing(std::vector<Step> steps, std::vector<UnreadableStep> unreadable = {})
      : steps_(std::move(steps)), unreadable_(std::move(unreadable)) {}

  const std::vector<Step>& steps() const noexcept { return steps_; }
  /// Sorted by the step number, in ascending order.
  const std::vector<UnreadableStep>& unreadable() const noexcept { return unreadable_; }
  const Step* find(std::int64_t number) const noexcept;
  /// Returns an invalid folder that has a name of step `number`, or null.
  const UnreadableStep* find_unreadable(std::int64_t number) const noexcept;
  /// Returns true if the seq of some step is unknown, because its document cannot be read or has a
  /// checksum that does not match.
  bool has_unknown_seq() const noexcept;
  /// Returns the step that was saved last (it has the highest `seq`) of those whose lineage is
  /// known, or null if there is none. The lineage of this step is the current lineage (see
  /// CheckpointManager).
  const Step* newest_save() const noexcept;
  /// Returns false for a step whose lineage is unknown.
  bool is_in_current_lineage(const Step& step) const noexcept;
  /// Returns the highest step of the current lineage, or null if there is none.
  const Step* latest() const noexcept;
  /// "1, 2, 3", for messages; "" without steps.
  std::string numbers() const;

 private:
  std::vector<Step> steps_;
  std::vector<UnreadableStep> unreadable_;
};

/// "step_00000500".
std::string step_folder_name(std::int64_t step);
/// Returns the number in the name of a step's folder, with or without leading zeros. Returns
/// nullopt for other names and for numbers that int64 cannot hold.
std::optional<std::int64_t> step_of_folder_name(std::string_view name) noexcept;
/// The parts of the name of a hidden sibling of a step's folder: ".step_00000500.tenfold-0" has the
/// rest "tenfold-0".
struct HiddenName {
  std::string folder_name;
  std::string rest;
};
std::optional<HiddenName> parse_hidden_name(std::string_view name);

/// Reads the steps of a directory. Reads the document of a known step again only if its file has
/// changed. Warns of each entry that has the name of a step but is not a valid step or is a
/// duplicate, without repeating a message. Renames steps that a crashed save left under a hidden
/// name, if this process has the permission. Thread-safe.
class DirectoryReader {
 public:
  explicit DirectoryReader(Path directory) : directory_(std::move(directory)) {}

  /// Returns an empty listing if the directory does not exist. Starts again if a step was removed
  /// during the call. Throws Error(io) (ESTALE) after os::kMaxReads attempts.
  Listing list();

 private:
  /// Returns nullopt if a step was removed during the call.
  std::optional<Listing> try_list();
  /// Returns nullopt if the folder is not a valid step or no longer exists.
  std::optional<Step> read(const os::Directory& directory, const std::string& name,
                           std::vector<UnreadableStep>& unreadable);
  void warn_once(const std::string& key, const std::string& message);

  Path directory_;
  std::mutex mutex_;
  std::map<std::string, Step> known_;  ///< the steps that were read, by folder name
  std::set<std::string> warned_;
};

/// Reads a step's document. Throws Error(file_not_found), Error(io), and Error(corrupt) if it is
/// not a regular file or is larger than kMaxDocumentBytes.
std::string read_document(const os::Directory& folder, os::FileInfo* info = nullptr);

}  // namespace tenfold::checkpoint
