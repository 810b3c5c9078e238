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

/// A model of a disk with only the guarantees of POSIX: bytes of a file are durable after a sync of
/// the file, entries of a folder after a sync of the folder. Each other write or change of an entry
/// may survive a power failure or not, independently of the others. Writes survive in any order.
///
/// The model is stricter than a journaling file system, in which a sync of one file may make other
/// changes durable as well.
class ModelDisk {
 public:
  /// Starts with the content of `root`, which is durable.
  explicit ModelDisk(const std::filesystem::path& root);

  /// Applies a change; `index` is its position in the log.
  void apply(const LoggedChange& change, std::size_t index);

  /// The probabilities with which each non-durable write and each non-durable entry survives.
  struct Survival {
    double writes = 0;
    double entries = 0;
  };
  /// Creates `target`, which must not exist, with content that may remain if the power fails now.
  void lose_power(const Survival& survival, std::mt19937_64& random,
                  const std::filesystem::path& target) const;

 private:
  using Id = std::size_t;
  struct PendingWrite {
    std::size_t index = 0;
    os::Change::Kind kind = os::Change::Kind::write;  // or truncate, insert
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;  // of an inserted hole
    std::string bytes;
  };
  /// Changes of entries, which become durable together. An entry without id is removed, others are
  /// added or replaced.
  struct PendingEntries {
    std::size_t index = 0;
    std::vector<std::pair<std::string, std::optional<Id>>> entries;
  };
  using Entries = std::map<std::string, Id>;
  struct Object {
    bool is_directory = false;
    std::string link;     // the target of a symbolic link
    std::string content;  // durable
    std::vector<PendingWrite> writes;
    Entries live;     // as running programs see them
    Entries entries;  // durable
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
