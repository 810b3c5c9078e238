#include "formats/torch_file/write.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/object_file.hpp"
#include "formats/shared/tree_notes.hpp"
#include "formats/shared/zip_archive.hpp"
#include "formats/torch_file/archive.hpp"
#include "formats/torch_file/plan.hpp"

namespace tenfold::detail::formats::torch_file {
namespace {

constexpr std::uint32_t kAlignment = 64;  // torch's

/// The folder of all records, as torch names it: like the file, where that is plain ASCII.
std::string root_of(const Path& path) {
  const std::string stem = path.stem().string();
  const bool is_plain = std::ranges::all_of(stem, [](char c) { return c >= ' ' && c <= '~'; });
  if (!is_plain || codecs::zip_name_fault(stem)) return "archive";
  return stem;
}

std::vector<ZipArchiveEntry> entries_of(Plan plan, std::string notes, const std::string& root) {
  std::vector<ZipArchiveEntry> entries;
  entries.reserve(plan.storages.size() + 4);
  const auto add = [&](const std::string& name, std::string text, std::optional<Leaf> leaf) {
    entries.push_back({root + "/" + name, std::move(text), std::move(leaf), kAlignment});
  };
  // torch reads the root off the first record.
  add("data.pkl", std::move(plan.pickle), std::nullopt);
  add("byteorder", "little", std::nullopt);
  for (std::size_t i = 0; i < plan.storages.size(); ++i) {
    add("data/" + std::to_string(i), "", std::move(plan.storages[i].bytes));
  }
  add("version", "3\n", std::nullopt);
  if (!notes.empty()) add(std::string(kNotesRecord), std::move(notes), std::nullopt);
  return entries;
}

}  // namespace

void check_tree(const TensorDict& tree) {
  make_plan(tree);
  tree_notes_of(tree);
}

void write_tree(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  if (request.zeros) {
    throw Error(ErrorCode::unsupported,
                path.string() +
                    ": memmap_like: a file of torch.save cannot be written through: expected a "
                    "folder, found " +
                    base::quote(path.filename().string()));
  }
  Plan plan = make_plan(tree);
  std::uint64_t total_bytes = 0;
  for (const StorageLayout& storage : plan.storages) total_bytes += storage.bytes.nbytes();
  const std::vector<ZipArchiveEntry> entries =
      entries_of(std::move(plan), request.notes ? tree_notes_of(tree) : "", root_of(path));
  Progress progress(request.monitor, total_bytes, path.filename().string());
  FileReplacement replacement(path, total_bytes);
  write_zip_archive(replacement.file(), entries, request, progress);
  replacement.publish(request.durable);
  progress.finish();
}

}  // namespace tenfold::detail::formats::torch_file

namespace tenfold::detail::formats {

std::vector<ZipArchiveEntry> plan_object_file(const TensorDict::Item& item) {
  return torch_file::entries_of(torch_file::make_object_plan(item), "", "archive");
}

}  // namespace tenfold::detail::formats
