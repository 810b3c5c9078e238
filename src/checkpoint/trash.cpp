#include "checkpoint/trash.hpp"

#include <memory>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "core/notes/notes.hpp"

namespace tenfold::checkpoint {
namespace {

constexpr std::string_view kTrashPrefix = ".trash-";

void remove_all(os::Directory& directory, const std::vector<std::string>& names) noexcept {
  for (const std::string& name : names) {
    try {
      directory.remove_tree(name);
    } catch (const Error& error) {
      warn(directory.display_of(name) + ": a removed step cannot be deleted yet: " + error.what() +
           "; the next save tries again");
    } catch (...) {
      return;  // Out of memory: the next call retries.
    }
  }
}

}  // namespace

std::string Trash::put(os::Directory& directory, const std::string& name) {
  for (;;) {
    std::string trash = std::string(kTrashPrefix) + std::to_string(next_++);
    if (directory.entry_info(trash)) continue;
    if (directory.rename_if_absent(name, trash)) return trash;
  }
}

void Trash::empty(const os::Directory& directory) {
  wait();
  std::vector<std::string> names;
  for (std::string& name : directory.list()) {
    if (name.starts_with(kTrashPrefix)) names.push_back(std::move(name));
  }
  if (names.empty()) return;
  worker_.emplace(1, [folder = std::make_shared<os::Directory>(directory.duplicate()),
                      names = std::move(names)] { remove_all(*folder, names); });
}

}  // namespace tenfold::checkpoint
