// A step's folder as a format of its own: the tree of its entries, read only. Other folders of
// trainers are in formats/bundle/.

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/document.hpp"
#include "checkpoint/entries.hpp"
#include "checkpoint/step.hpp"
#include "core/tree/node.hpp"
#include "formats/bundle/folder.hpp"
#include "formats/format.hpp"
#include "formats/shared/folder_verify.hpp"
#include "formats/shared/hub_cache.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::checkpoint {

using namespace detail;

namespace {

using formats::bundle::Folder;

/// The document begins with the name of its format. Others may call a file so, too.
bool probe_step(const Path& path) {
  if (!os::file_info(path).is_directory) return false;
  const os::Directory folder = os::Directory::open(path);
  const std::string name(kDocumentName);
  const auto info = folder.entry_info(name);
  if (!info || !info->is_regular) return false;
  std::array<std::byte, 64> head{};
  const os::File file = os::File::try_open_read_at(folder, name);
  if (!file.valid()) return false;
  const std::size_t size = file.read_some_at(0, head);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), size);
  return text.find(base::quote(kFormatName)) != std::string_view::npos;
}

CheckpointInfo read_step(const os::Directory& folder) {
  return parse_document(read_document(folder), folder.display_of(std::string(kDocumentName)));
}

/// An entry of the step, opened when it is asked for: a damaged one is an error by its key.
class StepEntry final : public LazyItem {
 public:
  StepEntry(std::shared_ptr<const Folder> folder, CheckpointEntry entry)
      : folder_(std::move(folder)), entry_(std::move(entry)) {}

  TensorDict::Item load() override {
    const Path within(entry_.path);
    os::Directory directory = folder_->directory().duplicate();
    for (const Path& part : within.parent_path()) {
      directory = os::Directory::open_at(directory, part.string());  // never a link
    }
    const std::string name = within.filename().string();
    const auto link = directory.read_link(name);
    if (link && !formats::is_cache_link(directory, name)) {
      throw Error(ErrorCode::corrupt, directory.display_of(name) +
                                          ": a symbolic link, which is not followed: expected a "
                                          "file or folder, found a link to " +
                                          base::quote(*link));
    }
    Path step = folder_->path_of(entry_.path);
    for ([[maybe_unused]] const Path& part : within) step = step.parent_path();
    return open_entry(step, entry_);
  }

 private:
  std::shared_ptr<const Folder> folder_;
  CheckpointEntry entry_;
};

TensorDict open_step(const Path& path, const formats::OpenRequest& request) {
  if (request.mode == Mode::write_through) {
    throw Error(ErrorCode::unsupported,
                path.string() +
                    ": mode: a step of CheckpointManager is not written: expected \"r\" or \"c\", "
                    "found \"r+\"; its export makes a copy that can be");
  }
  const auto folder = std::make_shared<const Folder>(path);
  const CheckpointInfo info = read_step(folder->directory());
  require_one_process(path, info);
  NodeInfo dict;
  dict.kind = NodeKind::dict;
  TensorDict state(dict);
  state.node()->where = path.string();
  for (const CheckpointEntry& entry : info.entries) {
    state.node()->entries.push_back({entry.name, std::make_shared<StepEntry>(folder, entry)});
  }
  return state;
}

VerifyReport verify_step_folder(const Path& path, const formats::VerifyRequest& request) {
  VerifyReport report;
  try {
    CheckpointInfo info = read_step(os::Directory::open(path));
    if (request.filter != nullptr) {
      std::erase_if(info.entries, [&](const CheckpointEntry& entry) {
        return !request.filter->selected().contains(entry.name);
      });
    }
    return verify_step(path, info, CheckpointCheck::full,
                       {.num_threads = request.num_threads, .monitor = request.monitor});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw;
    report.problems.push_back(formats::problem_of(error, path.string()));
  }
  return report;
}

[[noreturn]] void refuse_to_write() {
  throw Error(ErrorCode::unsupported,
              "bundle: steps are written by CheckpointManager: expected another format, such as "
              "\"memmap\" or \"tdz\", found \"bundle\"");
}
void check_step_tree(const TensorDict&) { refuse_to_write(); }
void write_step_tree(const TensorDict&, const Path&, const formats::WriteRequest&) {
  refuse_to_write();
}

}  // namespace
}  // namespace tenfold::checkpoint

namespace tenfold::detail::formats::bundle {

const Format kStepFormat = {"bundle",
                            {},
                            checkpoint::probe_step,
                            checkpoint::open_step,
                            checkpoint::check_step_tree,
                            checkpoint::write_step_tree,
                            checkpoint::verify_step_folder,
                            true};

}  // namespace tenfold::detail::formats::bundle
