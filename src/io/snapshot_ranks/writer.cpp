// Snapshots that several processes write together. Each rank plans its own tree. The coordinator,
// which has the outlines of all ranks, assigns the entries that ranks share. Each rank writes its
// files into folders into which no other rank writes. The coordinator merges the receipts of the
// ranks and publishes the snapshot.

#include <cerrno>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/snapshot.hpp>

#include "base/base64.hpp"
#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/value/value_json.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/snapshot/folder.hpp"
#include "formats/snapshot/manifest.hpp"
#include "formats/snapshot/plan.hpp"
#include "io/snapshot_ranks/assignment.hpp"
#include "io/snapshot_ranks/merge.hpp"
#include "io/snapshot_ranks/message.hpp"
#include "io/snapshot_ranks/outline.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/process.hpp"

namespace tenfold {

using namespace detail;
using namespace detail::formats::snapshot;
using namespace detail::snapshot_ranks;

namespace {

/// The file that contains the ID of the save, in a folder that is being written.
constexpr std::string_view kStagingName = "%staging";
constexpr std::uint64_t kMarkerBytes = 1024;  ///< greatest size of the file kStagingName
constexpr std::string_view kTicket = "ticket of a snapshot";

/// The message of the coordinator to all ranks.
struct Ticket {
  std::string id;
  std::string host;
  std::string staging;
  std::int64_t world_size = 1;
  bool durable = true;
  bool checksums = true;
  Assignment assignment;

  std::string to_text() const {
    Value::Object made = message(kTicket);
    made.members.emplace_back("id", id);
    made.members.emplace_back("host", base::base64(host));
    made.members.emplace_back("staging", base::base64(staging));  // a path need not be UTF-8
    made.members.emplace_back("world_size", world_size);
    made.members.emplace_back("durable", durable);
    made.members.emplace_back("checksums", checksums);
    Value::Object replicated;
    for (const auto& [path, ranks] : assignment.replicated) {
      replicated.members.emplace_back(path, list_of(ranks));
    }
    made.members.emplace_back("replicated", std::move(replicated));
    Value::Object boxes;
    for (const auto& [path, shared] : assignment.boxes) {
      Value::List list;
      for (const Assignment::SharedBox& box : shared) {
        list.items.push_back(tuple_of({list_of(box.offsets), list_of(box.sizes), box.rank}));
      }
      boxes.members.emplace_back(path, std::move(list));
    }
    made.members.emplace_back("boxes", std::move(boxes));
    return to_json(Value(std::move(made)));
  }

  static Ticket parse(std::string_view text) {
    return read_message(kTicket, text, [](const ValueReader& reader) {
      Ticket made;
      made.id = reader.at("id").text();
      made.host = decoded(reader.at("host"));
      made.staging = decoded(reader.at("staging"));
      made.world_size = reader.at("world_size").integer();
      made.durable = reader.at("durable").flag();
      made.checksums = reader.at("checksums").flag();
      for (const auto& [path, ranks] : reader.at("replicated").members()) {
        made.assignment.replicated.emplace(path, ranks.lengths());
      }
      for (const auto& [path, boxes] : reader.at("boxes").members()) {
        auto& shared = made.assignment.boxes[std::string(path)];
        for (const ValueReader& item : boxes.items()) {
          const auto fields = item.items(3);
          shared.push_back({fields[0].lengths(), fields[1].lengths(), fields[2].integer()});
        }
      }
      return made;
    });
  }
};

}  // namespace

class SnapshotPart::State {
 public:
  State(const TensorDict& tree, std::int64_t rank, std::int64_t world_size,
        std::vector<SnapshotShards> shards, const SnapshotOptions& options)
      : tree_(tree), options_(options) {
    if (world_size < 1 || rank < 0 || rank >= world_size) {
      throw base::invalid_argument()
          .part("snapshot")
          .part("rank")
          .expected("0 <= rank < world_size")
          .found("rank ", rank, " and world_size ", world_size);
    }
    rank_.rank = rank;
    rank_.world_size = world_size;
    rank_.shards = std::move(shards);
    if (world_size > 1 && tree_.info().schema) {
      warn("snapshot: the schema is ignored: expected one process, found " +
           std::to_string(world_size));
    }
    outline_ = outline_of(plan_snapshot(tree_, options_, rank_), tree_, rank_).to_text();
  }

  const std::string& outline() const noexcept { return outline_; }

  std::string write(std::string_view text, Monitor* monitor) {
    const Ticket ticket = Ticket::parse(text);
    if (ticket.world_size != rank_.world_size) {
      throw base::invalid_argument()
          .part("ticket of a snapshot")
          .expected("one for ", rank_.world_size, " ranks")
          .found(ticket.world_size);
    }
    SnapshotOptions options = options_;
    options.durable = ticket.durable;
    options.checksums = ticket.checksums;
    options.monitor = monitor;
    PlannedRank rank = rank_;
    rank.assignment = &ticket.assignment;
    const os::Directory root = open_staging(ticket);
    const Plan plan = plan_snapshot(tree_, options, rank);
    Receipt receipt{ticket.id, rank_.rank, {}, {}, plan.notes};
    const std::vector<formats::ChecksumLine> lines = write_data_files(plan, root, options);
    if (!lines.empty()) receipt.checksums = formats::checksums_text(lines);
    receipt.manifest = write_manifest(plan.manifest);
    return receipt.to_text();
  }

 private:
  os::Directory open_staging(const Ticket& ticket) const {
    std::string found = "none";
    try {
      os::Directory root = os::Directory::open(ticket.staging);
      const os::File marker = os::File::try_open_read_at(root, std::string(kStagingName));
      if (marker.valid() && marker.read_all(kMarkerBytes) == ticket.id) return root;
      found = "that of another save";
    } catch (const Error& error) {
      if (error.code() != ErrorCode::file_not_found) throw;
    }
    throw Error::io(ENOENT, ticket.staging)
        .part("rank ", rank_.rank, " on host ", base::quote(os::host_name()))
        .expected("the folder that the coordinator on host ", base::quote(ticket.host),
                  " has created")
        .found(found)
        .remedy("all ranks must use the same shared folder");
  }

  TensorDict tree_;
  SnapshotOptions options_;
  PlannedRank rank_;
  std::string outline_;
};

SnapshotPart::SnapshotPart(const TensorDict& tree, std::int64_t rank, std::int64_t world_size,
                           std::vector<SnapshotShards> shards, const SnapshotOptions& options)
    : state_(std::make_unique<State>(tree, rank, world_size, std::move(shards), options)) {}
SnapshotPart::SnapshotPart(SnapshotPart&&) noexcept = default;
SnapshotPart& SnapshotPart::operator=(SnapshotPart&&) noexcept = default;
SnapshotPart::~SnapshotPart() = default;

std::string SnapshotPart::outline() const { return state_->outline(); }
std::string SnapshotPart::write(std::string_view ticket, Monitor* monitor) {
  return state_->write(ticket, monitor);
}

class SnapshotWriter::State {
 public:
  State(const Path& path, std::span<const std::string> outlines, const SnapshotOptions& options)
      : path_(path), options_(options) {
    for (const std::string& text : outlines) outlines_.push_back(Outline::parse(text));
    for (std::size_t i = 0; i < outlines_.size(); ++i) require_rank(i, outlines_[i].rank);
    if (outlines_.empty() ||
        outlines_.front().world_size != static_cast<std::int64_t>(outlines_.size())) {
      throw base::invalid_argument(path_)
          .expected("one outline from each rank of the snapshot")
          .found(outlines_.size());
    }
    Shared shared = share_work(path_.string(), outlines_);
    ticket_.assignment = std::move(shared.assignment);
    formats::refuse_existing(path_, options_.overwrite);
    require_replaceable(path_);
    replacement_.emplace(path_, shared.num_bytes, foreign_in);
    ticket_.id = base::hex16(os::random_number());
    ticket_.host = os::host_name();
    ticket_.staging =
        (os::absolute(os::resolve_link(path_)).parent_path() / replacement_->hidden_name())
            .string();
    ticket_.world_size = static_cast<std::int64_t>(outlines_.size());
    ticket_.durable = options_.durable;
    ticket_.checksums = options_.checksums;
    os::File marker = os::File::create_at(replacement_->folder(), std::string(kStagingName));
    marker.write_at(0, std::as_bytes(std::span(ticket_.id)));
    marker.close_written();
  }

  std::string ticket() const { return ticket_.to_text(); }

  void publish(std::span<const std::string> receipts) {
    if (!replacement_) {
      throw base::invalid_argument(path_)
          .expected("a snapshot that is being written")
          .found("one that is published");
    }
    if (has_begun_) {
      throw base::invalid_argument(path_)
          .expected("a save that did not fail while it was published")
          .found("a save that failed")
          .remedy("save again");
    }
    if (receipts.size() != outlines_.size()) {
      throw base::invalid_argument(path_)
          .expected("the receipts of ", outlines_.size(), " ranks")
          .found(receipts.size());
    }
    std::vector<Receipt> parsed;
    for (std::size_t i = 0; i < receipts.size(); ++i) {
      parsed.push_back(Receipt::parse(receipts[i]));
      require_rank(i, parsed.back().rank);
      if (parsed.back().id != ticket_.id) {
        throw base::invalid_argument(path_)
            .part("receipt of rank ", i)
            .expected("a receipt of this save")
            .found("a receipt of another save");
      }
    }
    Merged merged = merge(path_.string(), parsed, ticket_.assignment, outlines_);
    has_begun_ = true;
    replacement_->folder().remove_file(std::string(kStagingName));
    write_documents(merged.manifest, merged.notes, std::move(merged.checksums),
                    replacement_->folder(), options_);
    replacement_->publish(options_.durable);
    replacement_.reset();
  }

 private:
  void require_rank(std::size_t position, std::int64_t rank) const {
    if (rank == static_cast<std::int64_t>(position)) return;
    throw base::invalid_argument(path_)
        .part("ranks")
        .expected("each rank once, in order")
        .found("rank ", rank, " at position ", position);
  }

  Path path_;
  SnapshotOptions options_;
  std::vector<Outline> outlines_;
  Ticket ticket_;
  bool has_begun_ = false;  ///< publish() may have changed files
  std::optional<formats::FolderReplacement> replacement_;
};

SnapshotWriter::SnapshotWriter(const Path& path, std::span<const std::string> outlines,
                               const SnapshotOptions& options)
    : state_(std::make_unique<State>(path, outlines, options)) {}
SnapshotWriter::SnapshotWriter(SnapshotWriter&&) noexcept = default;
SnapshotWriter& SnapshotWriter::operator=(SnapshotWriter&&) noexcept = default;
SnapshotWriter::~SnapshotWriter() = default;

std::string SnapshotWriter::ticket() const { return state_->ticket(); }
void SnapshotWriter::publish(std::span<const std::string> receipts) { state_->publish(receipts); }

}  // namespace tenfold
