#include "support/model_disk.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace tenfold::test {
namespace {

constexpr std::size_t kSectorBytes = 512;

bool chance(double probability, std::mt19937_64& random) {
  return std::uniform_real_distribution<double>(0, 1)(random) < probability;
}

}  // namespace

ModelDisk::ModelDisk(const std::filesystem::path& root) { root_ = snapshot(root); }

ModelDisk::Id ModelDisk::add_object(std::uint64_t inode, bool is_directory) {
  const Id id = objects_.size();
  objects_.emplace_back().is_directory = is_directory;
  by_inode_[inode] = id;  // replaces a removed object, whose inode number was reused
  return id;
}

ModelDisk::Id ModelDisk::snapshot(const std::filesystem::path& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) throw std::runtime_error("no " + path.string());
  if (const auto known = by_inode_.find(status.st_ino); known != by_inode_.end()) {
    return known->second;  // a hard link
  }
  const Id id = add_object(status.st_ino, S_ISDIR(status.st_mode));
  if (S_ISDIR(status.st_mode)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      const Id child = snapshot(entry.path());
      objects_[id].live[entry.path().filename().string()] = child;
    }
    objects_[id].entries = objects_[id].live;
  } else if (S_ISLNK(status.st_mode)) {
    objects_[id].link = std::filesystem::read_symlink(path).string();
  } else {
    std::ifstream file(path, std::ios::binary);
    objects_[id].content.assign(std::istreambuf_iterator<char>(file), {});
  }
  return id;
}

ModelDisk::Object& ModelDisk::at(std::uint64_t inode) {
  const auto found = by_inode_.find(inode);
  if (found == by_inode_.end()) throw std::runtime_error("a change outside the watched folder");
  return objects_[found->second];
}

void ModelDisk::change_entries(Object& directory, PendingEntries change) {
  for (const auto& [name, id] : change.entries) {
    if (id) {
      directory.live[name] = *id;
    } else {
      directory.live.erase(name);
    }
  }
  directory.changes.push_back(std::move(change));
}

void ModelDisk::apply(const LoggedChange& change, std::size_t index) {
  using Kind = os::Change::Kind;
  switch (change.kind) {
    case Kind::create_file:
    case Kind::create_directory: {
      const Id id = add_object(change.created_inode, change.kind == Kind::create_directory);
      return change_entries(at(change.inode), {index, {{change.name, id}}});
    }
    case Kind::symlink: {
      const Id id = add_object(change.created_inode, false);
      objects_[id].link = change.other;
      return change_entries(at(change.inode), {index, {{change.name, id}}});
    }
    case Kind::write:
    case Kind::truncate:
    case Kind::insert:
      at(change.inode)
          .writes.push_back(
              {index, change.kind, change.offset_bytes, change.size_bytes, change.bytes});
      return;
    case Kind::sync_file:
    case Kind::sync_directory:
      return settle(at(change.inode), change.covers);
    case Kind::rename: {
      Object& directory = at(change.inode);
      const Id moved = directory.live.at(change.name);
      return change_entries(directory,
                            {index, {{change.other, moved}, {change.name, std::nullopt}}});
    }
    case Kind::exchange: {
      Object& directory = at(change.inode);
      const Id a = directory.live.at(change.name);
      const Id b = directory.live.at(change.other);
      return change_entries(directory, {index, {{change.other, a}, {change.name, b}}});
    }
    case Kind::link: {
      const Id linked = at(change.other_directory).live.at(change.other);
      return change_entries(at(change.inode), {index, {{change.name, linked}}});
    }
    case Kind::remove_file:
    case Kind::remove_directory:
      return change_entries(at(change.inode), {index, {{change.name, std::nullopt}}});
    case Kind::permissions:
      return;
  }
}

void ModelDisk::settle(Object& object, std::size_t covers) {
  std::vector<PendingWrite> later_writes;
  for (PendingWrite& write : object.writes) {
    if (write.index < covers) {
      write_into(object.content, write);
    } else {
      later_writes.push_back(std::move(write));
    }
  }
  object.writes = std::move(later_writes);
  std::vector<PendingEntries> later_changes;
  for (PendingEntries& change : object.changes) {
    if (change.index >= covers) {
      later_changes.push_back(std::move(change));
      continue;
    }
    for (const auto& [name, id] : change.entries) {
      if (id) {
        object.entries[name] = *id;
      } else {
        object.entries.erase(name);
      }
    }
  }
  object.changes = std::move(later_changes);
}

void ModelDisk::write_into(std::string& content, const PendingWrite& write) {
  if (write.kind == os::Change::Kind::truncate) return content.resize(write.offset_bytes, '\0');
  if (write.kind == os::Change::Kind::insert) {
    // The file may be shorter than the offset if a write that extended it was lost.
    content.insert(std::min<std::size_t>(write.offset_bytes, content.size()), write.size_bytes,
                   '\0');
    return;
  }
  const std::size_t end = write.offset_bytes + write.bytes.size();
  if (content.size() < end) content.resize(end, '\0');
  content.replace(write.offset_bytes, write.bytes.size(), write.bytes);
}

std::string ModelDisk::torn_content(const Object& file, double survival, std::mt19937_64& random) {
  std::vector<const PendingWrite*> writes;
  for (const PendingWrite& write : file.writes) writes.push_back(&write);
  std::shuffle(writes.begin(), writes.end(), random);
  std::string content = file.content;
  for (const PendingWrite* write : writes) {
    const std::size_t end = write->offset_bytes + write->bytes.size();
    if (chance(survival, random)) {
      write_into(content, *write);
    } else if (write->kind == os::Change::Kind::write && chance(0.5, random)) {
      // A torn write stores only some sectors. The size may grow even if no sector is stored.
      if (content.size() < end) content.resize(end, '\0');
      for (std::size_t at = 0; at < write->bytes.size(); at += kSectorBytes) {
        const std::size_t count = std::min(kSectorBytes, write->bytes.size() - at);
        if (chance(survival, random)) {
          content.replace(write->offset_bytes + at, count, write->bytes, at, count);
        }
      }
    }
  }
  return content;
}

ModelDisk::Entries ModelDisk::surviving_entries(const Object& directory, double survival,
                                                std::mt19937_64& random) {
  Entries entries = directory.entries;
  for (const PendingEntries& change : directory.changes) {
    if (!chance(survival, random)) continue;
    for (const auto& [name, id] : change.entries) {
      if (id) {
        entries[name] = *id;
      } else {
        entries.erase(name);
      }
    }
  }
  return entries;
}

void ModelDisk::materialise(Id id, const Survival& survival, std::mt19937_64& random,
                            const std::filesystem::path& target,
                            std::map<Id, std::filesystem::path>& made) const {
  const Object& object = objects_[id];
  if (object.is_directory) {
    std::filesystem::create_directory(target);
    for (const auto& [name, child] : surviving_entries(object, survival.entries, random)) {
      materialise(child, survival, random, target / name, made);
    }
    return;
  }
  if (!object.link.empty()) return std::filesystem::create_symlink(object.link, target);
  const auto [place, is_new] = made.emplace(id, target);
  if (!is_new) return std::filesystem::create_hard_link(place->second, target);
  const std::string content = torn_content(object, survival.writes, random);
  std::ofstream(target, std::ios::binary)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
}

void ModelDisk::lose_power(const Survival& survival, std::mt19937_64& random,
                           const std::filesystem::path& target) const {
  std::map<Id, std::filesystem::path> made;
  materialise(root_, survival, random, target, made);
}

}  // namespace tenfold::test
