#include "formats/folder/verify.hpp"

#include <cstdint>
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
#include "os/fs/unreplaced.hpp"

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
    if (!is_problem_of_files(error)) throw error;
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
  const os::Directory root = os::Directory::open(path);
  // The version changes when a writer begins to append (which creates %commit), flushes (which
  // replaces the checksums if there are any), or closes the folder (which removes %commit). If it
  // changed during the check, the bytes read may belong to different versions.
  struct Version {
    bool is_growing;
    std::uint64_t checksums_inode;
    std::int64_t checksums_ns;
    bool operator==(const Version&) const = default;
  };
  const auto version = [&root]() -> Version {
    const auto checksums = root.entry_info(std::string(kChecksumsName)).value_or(os::FileInfo{});
    return {root.entry_info(std::string(kCommitName)).has_value(), checksums.inode,
            checksums.modified_ns};
  };
  for (int num_reads = 1;; ++num_reads) {
    const Version before = version();
    VerifyReport report;
    check_tree(FolderHandle::root(root.duplicate(), path), request, report);
    check_folder_checksums(root, request, report, before.is_growing);
    if (report.ok() || num_reads == os::kMaxReads || version() == before) return report;
  }
}

}  // namespace tenfold::detail::formats::folder
