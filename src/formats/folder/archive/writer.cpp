#include "formats/folder/archive/writer.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "formats/folder/keys.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// Sorts the files of a plan as tensordict orders them in an archive.
class Order {
 public:
  explicit Order(const Plan& plan)
      : plan_(plan), files_(plan.folders.size()), folders_(plan.folders.size()) {
    for (std::size_t i = 0; i < plan.files.size(); ++i) files_[plan.files[i].folder].push_back(i);
    for (std::size_t i = 1; i < plan.folders.size(); ++i) {
      folders_[plan.folders[i].parent].push_back(i);
    }
  }

  std::vector<std::size_t> run() {
    add(0);
    return std::move(order_);
  }

 private:
  void add(std::size_t folder) {
    auto& files = files_[folder];
    const auto rank = [&](std::size_t i) {
      const std::string& name = plan_.files[i].name;
      return std::pair(name != kMetaName, std::string_view(name));
    };
    std::ranges::sort(files, {}, rank);
    order_.insert(order_.end(), files.begin(), files.end());
    std::ranges::sort(folders_[folder], {},
                      [&](std::size_t i) { return std::string_view(plan_.folders[i].name); });
    for (const std::size_t child : folders_[folder]) add(child);
  }

  const Plan& plan_;
  std::vector<std::vector<std::size_t>> files_;  ///< files of each folder
  std::vector<std::vector<std::size_t>> folders_;
  std::vector<std::size_t> order_;
};

}  // namespace

void save_archive(Plan plan, const Path& path, const WriteRequest& request, int deflate_level) {
  std::vector<ZipArchiveEntry> entries;
  entries.reserve(plan.files.size());
  for (const std::size_t number : Order(plan).run()) {
    Plan::File& planned = plan.files[number];
    ZipArchiveEntry entry;
    entry.name = plan.path_of(planned);
    if (!planned.is_leaf) {
      entry.head = std::move(planned.text);
    } else if (request.zeros && !planned.is_sizes) {
      entry.alignment = kArchiveAlignment;
      entry.zero_bytes = planned.size_bytes;
    } else {
      entry.alignment = kArchiveAlignment;
      entry.leaf = std::move(planned.leaf);
      entry.deflate_level = deflate_level;
    }
    entries.push_back(std::move(entry));
  }
  save_entries(entries, path, request);
}

void save_entries(const std::vector<ZipArchiveEntry>& entries, const Path& path,
                  const WriteRequest& request) {
  std::uint64_t leaf_bytes = 0;
  std::uint64_t stored_bytes = 0;  // the size of deflated entries is not known yet
  for (const ZipArchiveEntry& entry : entries) {
    if (!entry.leaf) continue;
    leaf_bytes += entry.leaf->nbytes();
    if (entry.deflate_level == 0) stored_bytes += entry.leaf->nbytes();
  }
  Progress progress(request.monitor, leaf_bytes, "save");
  FileReplacement replacement(path, stored_bytes, OldFile::exclusive);
  write_zip_archive(replacement.file(), entries, request, progress);
  replacement.publish(request.durable);
  progress.finish();
}

}  // namespace tenfold::detail::formats::folder
