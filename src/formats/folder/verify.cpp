#include "formats/folder/verify.hpp"

#include <cerrno>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "core/tree/node.hpp"
#include "formats/folder/append/commit_page.hpp"
#include "formats/folder/handle.hpp"
#include "formats/folder/leaf_source.hpp"
#include "formats/folder/reader.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/folder_verify.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {
namespace {

class TreeVerifier {
 public:
  TreeVerifier(const VerifyRequest& request, VerifyReport& report)
      : request_(request), report_(report) {}

  void run(std::shared_ptr<Folder> root) {
    const std::string where = root->display();
    try {
      if (request_.filter != nullptr) return check_node(*node_of(request_.filter->selected()));
      const TensorDict tree = open_tree(std::move(root), Mode::read, &report_.problems);
      check_node(*node_of(tree));
    } catch (const Error& error) {
      add(error, where);
    }
  }

 private:
  void add(const Error& error, const std::string& path) {
    // A failed read is a problem of the data only if it concerns a single file.
    if (error.code() == ErrorCode::io && error.system_errno() == ECANCELED) throw error;
    report_.problems.push_back(problem_of(error, {path, "file"}));
  }

  void check_node(Node& node) {
    for (std::size_t i = 0; i < node.entries.size(); ++i) {
      if (request_.monitor != nullptr) progress_.poll();
      try {
        const TensorDict::Item item = node.item(i);
        if (const auto* leaf = std::get_if<Leaf>(&item)) {
          ++report_.num_leaves;
          if (auto* source = dynamic_cast<FolderSource*>(source_of(*leaf).get())) {
            report_.num_bytes += source->check(*leaf);
          }
        } else if (const auto* child = std::get_if<TensorDict>(&item)) {
          check_node(*node_of(*child));
        }
      } catch (const Error& error) {
        add(error, node.where);
      }
    }
  }

  const VerifyRequest& request_;
  VerifyReport& report_;
  Progress progress_{request_.monitor, 0, "verify"};
};

}  // namespace

void check_tree(std::shared_ptr<Folder> root, const VerifyRequest& request, VerifyReport& report) {
  TreeVerifier(request, report).run(std::move(root));
}

VerifyReport verify_folder(const Path& path, const VerifyRequest& request) {
  // A writer may begin to append after %commit was looked up, or end: then it has created that file
  // or replaced the checksums.
  constexpr int kMaxAttempts = 100;
  const std::string commit_name(kCommitName);
  const std::string checksums_name(kChecksumsName);
  const os::Directory root = os::Directory::open(path);
  for (int attempt = 1;; ++attempt) {
    VerifyReport report;
    const auto checksums = root.entry_info(checksums_name);
    const bool is_growing = root.entry_info(commit_name).has_value();
    check_tree(FolderHandle::root(root.duplicate(), path), request, report);
    check_folder_checksums(root, request, report, is_growing);
    if (report.ok() || attempt == kMaxAttempts) return report;
    const auto now = root.entry_info(checksums_name);
    const bool has_changed =
        checksums.has_value() != now.has_value() ||
        (now && (!now->same_file(*checksums) || now->modified_ns != checksums->modified_ns)) ||
        root.entry_info(commit_name).has_value() != is_growing;
    if (!has_changed) return report;
  }
}

}  // namespace tenfold::detail::formats::folder
