#include "checkpoint/step.hpp"

#include <memory>
#include <utility>

#include <tenfold/error.hpp>

#include "checkpoint/directory.hpp"
#include "checkpoint/document.hpp"
#include "checkpoint/entries.hpp"
#include "core/tree/node.hpp"
#include "formats/shared/problem.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::checkpoint {

namespace {

class LazyEntry final : public LazyItem {
 public:
  LazyEntry(Path step_path, CheckpointEntry entry)
      : step_path_(std::move(step_path)), entry_(std::move(entry)) {}

  TensorDict::Item load() override { return open_entry(step_path_, entry_); }

 private:
  Path step_path_;
  CheckpointEntry entry_;
};

TensorDict empty_state() {
  NodeInfo dict;
  dict.kind = NodeKind::dict;
  return TensorDict(dict);
}

}  // namespace

VerifyReport verify_step(const Path& path, const CheckpointInfo& info, CheckpointCheck check,
                         const VerifyOptions& options, Rank rank,
                         const std::set<std::string>& copied) {
  VerifyReport report;
  const os::Directory folder = os::Directory::open(path);
  const std::string document = folder.display_of(std::string(kDocumentName));
  try {
    const std::string text = read_document(folder);
    ++report.num_checksums;
    require_checksum(text, document);
  } catch (const Error& error) {
    if (!detail::formats::is_problem_of_files(error)) throw;
    report.problems.push_back(detail::formats::problem_of(error, document));
  }
  for (const CheckpointEntry& entry : info.entries) {
    if (entry.rank && *entry.rank % rank.world_size != rank.rank) continue;
    const std::int64_t own = own_rank(info, rank.rank);
    const bool is_copied = copied.contains(entry.name) && entry.rank.value_or(own) == own;
    verify_entry(folder, path, entry, check == CheckpointCheck::full && !is_copied, options, rank,
                 report);
  }
  return report;
}

std::int64_t own_rank(const CheckpointInfo& info, std::int64_t rank) noexcept {
  return rank < info.world_size ? rank : 0;
}

TensorDict open_state(const Path& path, const CheckpointInfo& info, std::int64_t rank) {
  TensorDict state = empty_state();
  for (const CheckpointEntry& entry : info.entries) {
    if (entry.rank && *entry.rank != rank) continue;
    state.set(entry.name, open_entry(path, entry));
  }
  return state;
}

TensorDict open_state_lazily(const Path& path, const CheckpointInfo& info) {
  TensorDict state = empty_state();
  for (const CheckpointEntry& entry : info.entries) {
    if (entry.rank.value_or(0) != 0) continue;
    node_of(state)->entries.push_back({entry.name, std::make_shared<LazyEntry>(path, entry)});
  }
  return state;
}

}  // namespace tenfold::checkpoint
