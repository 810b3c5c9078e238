#include "formats/folder/inventory.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "core/notes/notes.hpp"
#include "formats/folder/append/commit_page.hpp"
#include "formats/folder/files.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/parts_manifest.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {

bool is_leftover(std::string_view name) {
  return is_hidden_name(name) || name == ".meta.json.append.tmp" || name.starts_with(".tdtmp-") ||
         name.starts_with(".tdz-");
}

bool is_own_name(std::string_view name) {
  return name == kNotesName || name == kChecksumsName || name == kValuesName ||
         name == kCommitName || name == kPartsName || is_clash_name(name) ||
         (name.ends_with(kSizesSuffix) &&
          is_clash_name(name.substr(0, name.size() - kSizesSuffix.size())));
}

namespace {

bool is_number(std::string_view name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// The names of the folder's entries according to the node's metadata.
struct Named {
  std::unordered_set<std::string> files;
  std::unordered_set<std::string> folders;
  bool elements = false;  ///< also the folders "0", "1", ...

  bool contains(const std::string& name, bool is_folder) const {
    if (!is_folder) return files.contains(name);
    return folders.contains(name) || (elements && is_number(name));
  }
};

void name_entry(const MetaEntry& entry, Named& named) {
  // tensordict before 0.14 did not encode keys.
  for (const std::string& name : {encode_key(entry.key), entry.key}) {
    if (entry.is_node) {
      named.folders.insert(name);
      continue;
    }
    named.files.insert(name + std::string(kLeafSuffix));
    named.files.insert(sizes_name(name));
  }
}

Named names_of(const NodeMeta& meta) {
  Named named;
  named.files = {std::string(kMetaName), "other.pickle", "pickle.pkl", "json_types.json"};
  named.folders = {std::string(kInnerName), "_source"};
  for (const MetaEntry& entry : meta.entries) name_entry(entry, named);
  for (const auto& [key, position] : meta.reserved) {
    // A key that meta.json uses itself, such as "shape". `%notes.json` may list an entry with it.
    named.files.insert(std::string(key) + std::string(kLeafSuffix));
    named.folders.insert(std::string(key));
  }
  named.elements = meta.kind == MetaKind::lazy_stack || meta.kind == MetaKind::non_tensor_stack;
  return named;
}

Named names_in(const os::Directory& folder) {
  const os::File file = os::File::try_open_read_at(folder, std::string(kMetaName));
  if (!file.valid()) return {};
  try {
    return names_of(parse_meta(file.read_all(kMaxMetaBytes), file.display()));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) throw;
    Named named;
    named.files = {std::string(kMetaName)};
    return named;
  }
}

/// `depth`: the number of folders above this one in the tree.
void list_folder(const os::Directory& folder, const std::string& prefix, std::size_t depth,
                 Inventory& inventory) {
  if (depth > Folder::kMaxDepth) {
    throw base::unsupported(folder.display())
        .problem("nodes nested too deep")
        .expected("at most ", Folder::kMaxDepth, " levels");
  }
  const Named named = names_in(folder);
  std::vector<std::string> entries = folder.list();
  std::sort(entries.begin(), entries.end());
  for (const std::string& name : entries) {
    const std::string path = prefix + name;
    const auto info = folder.entry_info(name);
    if (!info) continue;
    const bool is_part = is_own_name(name) || (prefix.empty() && name == kBadRowsName) ||
                         named.contains(name, info->is_directory);
    if (!is_part && !is_leftover(name)) {
      inventory.foreign.push_back(path);
    } else if (!info->is_directory) {
      inventory.files.push_back(path);
    } else {
      inventory.folders.push_back(path);
      if (is_part)
        list_folder(os::Directory::open_at(folder, name), path + "/", depth + 1, inventory);
    }
  }
}

/// Lists a folder of a data set of parts. `parts` are the paths of all parts; `prefix` is the path
/// of this folder with a slash at its end, or "" for the root.
void list_parts(const os::Directory& folder, const std::string& prefix,
                const std::set<std::string>& parts, Inventory& inventory) {
  std::vector<std::string> entries = folder.list();
  std::sort(entries.begin(), entries.end());
  for (const std::string& name : entries) {
    const std::string path = prefix + name;
    const auto info = folder.entry_info(name);
    if (!info) continue;
    const auto below = parts.lower_bound(path + "/");
    const bool is_above = below != parts.end() && below->starts_with(path + "/");
    if (info->is_directory && parts.contains(path)) {
      inventory.folders.push_back(path);
      list_folder(os::Directory::open_at(folder, name), path + "/", 0, inventory);
    } else if (info->is_directory && is_above) {
      inventory.folders.push_back(path);
      list_parts(os::Directory::open_at(folder, name), path + "/", parts, inventory);
    } else if (is_leftover(name)) {
      (info->is_directory ? inventory.folders : inventory.files).push_back(path);
    } else if (prefix.empty() && name == kPartsName) {
      inventory.files.push_back(path);
    } else {
      inventory.foreign.push_back(path);
    }
  }
}

/// Returns the paths of the parts in the manifest. Returns none if the manifest is damaged, so that
/// every part counts as foreign.
std::set<std::string> paths_of_parts(const os::Directory& folder) {
  std::set<std::string> paths;
  try {
    for (const PartEntry& part : read_parts_manifest(folder).parts) paths.insert(part.path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) throw;
  }
  return paths;
}

/// Throws Error(unsupported) if the notes of the root are of a newer version.
void require_known_notes(const os::Directory& root) {
  const os::File file = os::File::try_open_read_at(root, std::string(kNotesName));
  if (!file.valid()) return;
  try {
    Notes::from_json(file.read_all(kMaxMetaBytes), file.display());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) throw;
  }
}

bool is_regular(const os::Directory& folder, std::string_view name) {
  const auto info = folder.entry_info(std::string(name));
  return info && info->is_regular;
}

}  // namespace

bool is_leftover_in(const os::Directory& folder, const std::string& name, bool is_folder) {
  return is_leftover(name) && !names_in(folder).contains(name, is_folder);
}

Inventory take_inventory(const os::Directory& root) {
  Inventory inventory;
  require_known_notes(root);
  if (is_regular(root, kPartsName)) {
    list_parts(root, "", paths_of_parts(root), inventory);
  } else {
    list_folder(root, "", 0, inventory);
  }
  return inventory;
}

namespace {

bool is_tree(const os::Directory& folder) {
  return is_regular(folder, kMetaName) || is_regular(folder, kPartsName);
}

}  // namespace

std::vector<std::string> foreign_in(const os::Directory& folder) {
  std::vector<std::string> names = is_tree(folder) ? take_inventory(folder).foreign : folder.list();
  std::sort(names.begin(), names.end());
  return names;
}

void require_replaceable(const Path& path) {
  bool has_tree = false;
  const std::vector<std::string> foreign = foreign_at(path, [&](const os::Directory& folder) {
    has_tree = is_tree(folder);
    return foreign_in(folder);
  });
  refuse_foreign(path, foreign,
                 has_tree ? "only what its metadata names" : "a saved tree or an empty folder");
}

}  // namespace tenfold::detail::formats::folder
