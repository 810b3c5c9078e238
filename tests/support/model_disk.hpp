#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/change_log.hpp"

namespace tenfold::test {

/// A disk that promises what POSIX does and nothing more: bytes of a file are safe after a sync of
/// the file, entries of a folder after a sync of the folder. What is not safe may be there after a
/// power loss, or not, each write and each entry for itself and in any order.
///
/// Stricter than any journal: nothing is ever made safe on the side.
class ModelDisk {
 public:
  /// What is in `root` now is safe.
  explicit ModelDisk(const std::filesystem::path& root);

  /// The change has happened; `index` is its place in the log.
  void apply(const LoggedChange& change, std::size_t index);

  /// How much of what is not safe survives, from 0 (nothing) to 1 (everything).
  struct Survival {
    double writes = 0;
    double entries = 0;
  };
  /// Makes in `target` (which does not exist) what is found after a power loss now.
  void lose_power(const Survival& survival, std::mt19937_64& random,
                  const std::filesystem::path& target) const;

 private:
  using Id = std::size_t;
  struct PendingWrite {
    std::size_t index = 0;
    bool truncate = false;
    std::uint64_t offset_bytes = 0;
    std::string bytes;
  };
  /// Entries that appear or, without an id, go: together or not at all.
  struct PendingEntries {
    std::size_t index = 0;
    std::vector<std::pair<std::string, std::optional<Id>>> entries;
  };
  using Entries = std::map<std::string, Id>;
  struct Object {
    bool is_directory = false;
    std::string link;     // the text of a symbolic link
    std::string content;  // safe
    std::vector<PendingWrite> writes;
    Entries live;     // as a running program sees them
    Entries entries;  // safe
    std::vector<PendingEntries> changes;
  };

  Id add_object(std::uint64_t inode, bool is_directory);
  Id snapshot(const std::filesystem::path& path);
  Object& at(std::uint64_t inode);
  void change_entries(Object& directory, PendingEntries change);
  static void settle(Object& object, std::size_t covers);
  static void write_into(std::string& content, const PendingWrite& write);
  static std::string torn_content(const Object& file, double survival, std::mt19937_64& random);
  static Entries surviving_entries(const Object& directory, double survival,
                                   std::mt19937_64& random);
  void materialise(Id id, const Survival& survival, std::mt19937_64& random,
                   const std::filesystem::path& target,
                   std::map<Id, std::filesystem::path>& made) const;

  std::vector<Object> objects_;
  std::map<std::uint64_t, Id> by_inode_;
  Id root_ = 0;
};

}  // namespace tenfold::test
