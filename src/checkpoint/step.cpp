#include "checkpoint/step.hpp"

#include <cstddef>

#include <tenfold/error.hpp>

#include "checkpoint/directory.hpp"
#include "checkpoint/document.hpp"
#include "checkpoint/entries.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::checkpoint {

VerifyReport verify_step(const Path& path, const CheckpointInfo& info, CheckpointCheck check,
                         const VerifyOptions& options, Rank rank) {
  VerifyReport report;
  const os::Directory folder = os::Directory::open(path);
  const std::string document = folder.display_of(std::string(kDocumentName));
  try {
    const std::string problem = checksum_problem(read_document(folder));
    if (!problem.empty()) report.problems.push_back({document, "", problem});
    ++report.num_checksums;
  } catch (const Error& error) {
    report.problems.push_back({document, "", error.what()});
  }
  for (const CheckpointEntry& entry : info.entries) {
    if (entry.rank && *entry.rank % rank.world_size != rank.rank) continue;
    verify_entry(folder, path, entry, check == CheckpointCheck::full, options, rank, report);
  }
  return report;
}

TensorDict open_state(const Path& path, const CheckpointInfo& info, std::int64_t rank) {
  NodeInfo dict;
  dict.kind = NodeKind::dict;
  TensorDict state(dict);
  for (const CheckpointEntry& entry : info.entries) {
    if (entry.rank && *entry.rank != rank) continue;
    state.set(entry.name, open_entry(path, entry));
  }
  return state;
}

std::string first_problem(const VerifyReport& report) {
  const Problem& first = report.problems.front();
  std::string text = first.path;
  if (!first.part.empty()) text += ": " + first.part;
  text += ": " + first.what;
  const std::size_t more = report.problems.size() - 1;
  return more == 0 ? text : text + "; and " + std::to_string(more) + " more";
}

}  // namespace tenfold::checkpoint
