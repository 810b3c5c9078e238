// Opens the folder of a step as a tree of its entries. This format cannot be written. The code in
// formats/bundle/ opens the checkpoint folders that the trainers of other libraries write.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/document.hpp"
#include "checkpoint/entries.hpp"
#include "checkpoint/step.hpp"
#include "core/tree/node.hpp"
#include "formats/bundle/folder.hpp"
#include "formats/format.hpp"
#include "formats/shared/folder_verify.hpp"
#include "formats/shared/problem.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::checkpoint {

using namespace detail;

namespace {

using formats::bundle::Folder;

/// Returns true if the first bytes of the file kDocumentName contain kFormatName. The file name
/// alone is not enough, because other programs may write a file with this name.
bool probe_step(const formats::FileHead& head) {
  if (!head.has_file(kDocumentName)) return false;
  std::array<std::byte, 64> start{};
  const os::File file = os::File::try_open_read_at(head.folder(), std::string(kDocumentName));
  if (!file.valid()) return false;
  const std::size_t size = file.read_some_at(0, start);
  const std::string_view text(reinterpret_cast<const char*>(start.data()), size);
  return text.find(base::quote(kFormatName)) != std::string_view::npos;
}

CheckpointInfo read_step(const os::Directory& folder) {
  return parse_document(read_document(folder), folder.display_of(std::string(kDocumentName)));
}

/// An entry of the step, opened at its first access. A damaged entry does not prevent access to
/// other entries.
class StepEntry final : public LazyItem {
 public:
  StepEntry(std::shared_ptr<const Folder> folder, CheckpointEntry entry)
      : folder_(std::move(folder)), entry_(std::move(entry)) {}

  TensorDict::Item load() override {
    const Path within(entry_.path);
    os::Directory directory = folder_->directory().duplicate();
    for (const Path& part : within.parent_path()) {
      directory = os::Directory::open_at(directory, part.string());  // refuses a link
    }
    const std::string name = within.filename().string();
    if (const auto link = directory.read_link(name)) {
      throw base::corrupt(directory.display_of(name))
          .problem("a symbolic link, which is not followed")
          .expected("a file or folder")
          .found("a link to ", base::quote(*link));
    }
    Path step = folder_->path_of(entry_.path);
    for ([[maybe_unused]] const Path& part : within) step = step.parent_path();
    return open_entry(step, entry_);
  }

 private:
  std::shared_ptr<const Folder> folder_;
  CheckpointEntry entry_;
};

TensorDict dict_at(std::string where) {
  NodeInfo dict;
  dict.kind = NodeKind::dict;
  TensorDict node(dict);
  node_of(node)->where = std::move(where);
  return node;
}

/// Returns the key of the node that contains the entries of single ranks: "ranks", with underscores
/// appended until no entry that belongs to all ranks has this name.
std::string ranks_key(const CheckpointInfo& info) {
  std::string key(kRanksName);
  while (entry_of(info, key, std::nullopt) != nullptr) key += '_';
  return key;
}

/// Opens a step as a dict. Entries that belong to all ranks have their names as keys. Entries of a
/// single rank are at (ranks_key(), rank, name).
TensorDict open_step(const formats::FileHead& head, const formats::OpenRequest& /*request*/) {
  const auto folder = std::make_shared<const Folder>(head.path());
  const CheckpointInfo info = read_step(folder->directory());
  const std::string where = head.path().string();
  TensorDict state = dict_at(where);
  std::map<std::int64_t, TensorDict> ranks;
  for (const CheckpointEntry& entry : info.entries) {
    TensorDict& parent =
        entry.rank ? ranks.try_emplace(*entry.rank, dict_at(where)).first->second : state;
    node_of(parent)->entries.push_back({entry.name, std::make_shared<StepEntry>(folder, entry)});
  }
  if (!ranks.empty()) {
    TensorDict all = dict_at(where);
    for (auto& [rank, entries] : ranks) all.set(std::to_string(rank), std::move(entries));
    state.set(ranks_key(info), std::move(all));
  }
  return state;
}

VerifyReport verify_step_folder(const Path& path, const formats::VerifyRequest& request) {
  VerifyReport report;
  try {
    CheckpointInfo info = read_step(os::Directory::open(path));
    if (request.filter != nullptr) {
      const std::string key_of_ranks = ranks_key(info);
      std::erase_if(info.entries, [&](const CheckpointEntry& entry) {
        return !request.filter->selected().contains(entry.rank ? key_of_ranks : entry.name);
      });
    }
    return verify_step(path, info, CheckpointCheck::full,
                       {.num_threads = request.num_threads, .monitor = request.monitor});
  } catch (const Error& error) {
    formats::add_problem(report, error, {path.string(), "file"});
  }
  return report;
}

}  // namespace
}  // namespace tenfold::checkpoint

namespace tenfold::detail::formats::bundle {

const Format kStepFormat = {
    .name = "bundle",
    .noun = "a step of CheckpointManager",
    .suffixes = {},
    .holds_sparse = true,
    .probe = checkpoint::probe_step,
    .open_tree = checkpoint::open_step,
    .check_tree = nullptr,
    .write_tree = nullptr,
    .verify = checkpoint::verify_step_folder,
};

}  // namespace tenfold::detail::formats::bundle
