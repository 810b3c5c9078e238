#include "formats/folder/store.hpp"

#include <optional>

#include "base/text.hpp"
#include "formats/folder/keys.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// Splits a path of notes (core/notes/notes.hpp) into the path of the parent node and the key.
/// Returns nullopt for the root and for an invalid path.
std::optional<std::pair<std::string, std::string>> split_path(std::string_view path) {
  auto keys = keys_of_note_path(path);
  if (!keys || keys->empty()) return std::nullopt;
  std::string key = std::move(keys->back());
  keys->pop_back();
  return std::pair(note_path(*keys), std::move(key));
}

}  // namespace

Store::Store(Mode mode, Notes notes, base::Where notes_where)
    : mode_(mode), notes_(std::move(notes)), notes_where_(std::move(notes_where)) {
  index_notes();
}

void Store::index_notes() {
  for (const auto& [path, leaf] : notes_.leaves) {
    if (auto place = split_path(path)) {
      node_notes_[place->first].leaves.emplace_back(std::move(place->second), leaf);
    }
  }
  for (const auto& [path, name] : notes_.files) {
    auto place = split_path(path);
    // tenfold writes no other names. Another name could be that of a different entry's file.
    if (!place || (!is_clash_name(name) && name != encode_key(place->second))) {
      warn(notes_where_.text() + ": the file name of " + base::quote(path) +
           " is ignored: expected \"%clash-<number>\" or the encoded key, found " +
           base::quote(name));
      continue;
    }
    node_notes_[place->first].files.emplace_back(std::move(place->second), name);
  }
  for (const std::string& path : notes_.unbatched) {
    if (auto place = split_path(path)) {
      node_notes_[place->first].unbatched.push_back(std::move(place->second));
    }
  }
  for (const auto& [path, target] : notes_.aliases) {
    auto& group = groups_[target];
    if (!group) group = std::make_shared<AliasGroup>();
    const auto shared = group;
    groups_[path] = shared;
  }
}

void Store::report_ignored(const std::string& path, const std::string& part,
                           const std::string& what) {
  if (problems_ != nullptr) {
    problems_->push_back({path, part, what});
  } else {
    warn(path + ": " + part + ": " + what);
  }
}

const NodeNotes* Store::node_notes(const std::string& path) const {
  const auto found = node_notes_.find(path);
  return found == node_notes_.end() ? nullptr : &found->second;
}

AliasGroup* Store::alias_group(const std::string& path) const {
  const auto found = groups_.find(path);
  return found == groups_.end() ? nullptr : found->second.get();
}

}  // namespace tenfold::detail::formats::folder
