#pragma once

#include <string>

#include <tenfold/io.hpp>

#include "os/directory.hpp"
#include "os/file.hpp"

namespace tenfold {

/// Replaces one file so that its name holds, at every moment, the old bytes or the new, whole:
///
///   1. a sibling `.<name>.tenfold-<k>` is made and locked (flock); one left by a dead process is
///      taken over, so that an interrupted save leaves no litter after the next one
///   2. the caller writes it through file()
///   3. publish(): permissions and owner of the old file; fsync of the new one (durable); exchange
///      with the old name (or rename, where there is none or the file system cannot exchange);
///      fsync of the parent (durable); the old file is removed, and its space freed in the
///      background; file() is closed
///
/// Readers that mapped the old file keep its bytes. Without publish() the destructor removes the
/// sibling. Plain rename-over is avoided because ext4 flushes the new file before it
/// (auto_da_alloc). Missing folders above `path` are made.
class FileReplacement {
 public:
  /// Links are followed. Throws Error(io) if the parent allows no sibling or `path` is a folder
  /// (EISDIR), Error(invalid_argument) if it is neither file nor folder.
  explicit FileReplacement(const Path& path);
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;
  ~FileReplacement();

  os::File& file() noexcept { return file_; }
  void publish(bool durable);

 private:
  void remove_exchanged();

  os::Directory parent_;
  std::string name_;
  std::string sibling_;
  os::File file_;
  os::File old_;  ///< after the exchange: what is called sibling_, locked
  bool has_sibling_ = false;
};

/// The same for a folder. The caller fills folder() and syncs its files and sub-folders (durable);
/// publish() syncs the folder itself, exchanges it with the old one, syncs the parent and removes
/// the old tree. While it is prepared and published the old folder is locked exclusively: Error(io)
/// if someone holds it open for writing ("r+").
///
/// Where the file system cannot exchange: the old folder is renamed to `.<name>.tenfold-old`, the
/// new one moved in; a kill between the two leaves the old one whole under that name, and
/// recover_folder() puts it back.
class FolderReplacement {
 public:
  explicit FolderReplacement(const Path& path);
  FolderReplacement(const FolderReplacement&) = delete;
  FolderReplacement& operator=(const FolderReplacement&) = delete;
  ~FolderReplacement();

  os::Directory& folder() noexcept { return folder_; }
  void publish(bool durable);

 private:
  void step_aside_and_move_in(bool durable);

  os::Directory parent_;
  std::string name_;
  std::string sibling_;
  os::Directory folder_;
  os::Directory old_;
  bool has_sibling_ = false;
};

/// Puts back a folder that a killed replacement left as `.<name>.tenfold-old` (file systems
/// without exchange). Called by open, load and save when `path` does not exist; true if it did
/// something.
bool recover_folder(const Path& path);

}  // namespace tenfold
