// A folder that a trainer wrote, opened read-only as one tree: transformers' Trainer, accelerate,
// DeepSpeed, torch_checkpointing. Each file or folder in it is an entry of the tree, whatever its
// format, except hidden files and folders, and shards that an index lists. The other source files:
//   folder  recognises such folders, and lists their entries and keys
//   entry   reads an entry at its first access; provides the bytes of files in unknown formats

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "core/tree/node.hpp"
#include "formats/bundle/entry.hpp"
#include "formats/bundle/folder.hpp"
#include "formats/format.hpp"
#include "formats/shared/folder_verify.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/verify_filter.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::bundle {
namespace {

bool probe(const FileHead& head) { return head.is_folder() && is_bundle(head.folder()); }

TensorDict open(const FileHead& head, const OpenRequest& request) {
  return open_folder(head.path(), request, 0);
}

class Verifier {
 public:
  Verifier(const Path& path, const VerifyRequest& request, std::size_t level)
      : folder_(std::make_shared<const Folder>(path)), request_(request), level_(level) {}

  VerifyReport run() {
    Progress progress(request_.monitor, 0, "verify");
    for (const Entry& entry : list_entries(folder_->directory())) {
      progress.poll();
      if (request_.filter != nullptr && !has_key(request_.filter->selected(), entry.key)) {
        continue;
      }
      try {
        check(entry);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::io) throw;
        report_.problems.push_back(
            problem_of(error, {folder_->directory().display_of(entry.name), "file"}));
      }
    }
    return std::move(report_);
  }

 private:
  void check(const Entry& entry) {
    const Reading reading = reading_of(*folder_, entry.name);
    const TensorDict::Item item = read_entry(folder_, entry.name, reading, {}, level_);
    const auto* node = std::get_if<TensorDict>(&item);
    const bool is_refused = node != nullptr && node->info().is_refused();
    if (reading.way != Reading::Way::format || is_refused) {
      report_.unchecked.push_back(entry.key);
      return;
    }
    const Path path = folder_->path_of(entry.name);
    const VerifyRequest request = request_for(entry);
    const VerifyReport found = reading.format == &kFormat
                                   ? Verifier(path, request, level_ + 1).run()
                                   : reading.format->verify(path, request);
    add_report(report_, found);
    for (const std::string& key : found.unchecked) {
      report_.unchecked.push_back(entry.key + "." + key);
    }
    if (found.num_checksums == 0 && found.unchecked.empty()) {
      report_.unchecked.push_back(entry.key);
    }
  }

  /// Returns the request for the verifier of an entry. The filter gets the node of the entry as its
  /// selected tree, because verifiers compare the keys of this tree with those of their own file.
  /// For an entry that is one tensor or value, the request has no filter: the entry is checked as a
  /// whole.
  VerifyRequest request_for(const Entry& entry) {
    VerifyRequest request = request_;
    if (request_.filter == nullptr) return request;
    const TensorDict::Item chosen = item_at_key(request_.filter->selected(), entry.key);
    const auto* node = std::get_if<TensorDict>(&chosen);
    if (node != nullptr && !filter_) filter_ = *request_.filter;
    if (node != nullptr) filter_->set_selected(*node);
    request.filter = node != nullptr ? &*filter_ : nullptr;
    return request;
  }

  std::shared_ptr<const Folder> folder_;
  const VerifyRequest& request_;
  std::optional<VerifyFilter> filter_;  ///< the filter of the request, for one entry
  std::size_t level_;
  VerifyReport report_;
};

VerifyReport verify(const Path& path, const VerifyRequest& request) {
  return Verifier(path, request, 0).run();
}

}  // namespace

const Format kFormat = {
    .name = "bundle",
    .noun = "a folder of a trainer",
    .suffixes = {},
    .holds_sparse = true,
    .probe = probe,
    .open_tree = open,
    .check_tree = nullptr,
    .write_tree = nullptr,
    .verify = verify,
};

}  // namespace tenfold::detail::formats::bundle
