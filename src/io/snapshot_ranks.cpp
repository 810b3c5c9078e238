// Snapshots that several processes write together. Each rank plans its own tree; what ranks share
// is assigned by the coordinator, who knows the outlines of all: replicated entries, and boxes of
// sharded tensors that a mesh replicates. Each rank writes below folders of its own; the
// coordinator merges what the ranks say of their files and publishes the folder.

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/snapshot.hpp>

#include "base/base64.hpp"
#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/tree/assembled_source.hpp"
#include "core/value/value_json.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/snapshot/folder.hpp"
#include "formats/snapshot/manifest.hpp"
#include "formats/snapshot/plan.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/process.hpp"

namespace tenfold {

using namespace detail;
using namespace detail::formats::snapshot;

namespace {

/// In the folder that is being written: the number of the save.
constexpr std::string_view kStagingName = "%staging";
/// About what a file of torch.save takes besides its tensors.
constexpr std::uint64_t kObjectBytes = 1024;

// --- the texts that ranks exchange: JSON ---

[[noreturn]] void refuse_text(const std::string& what) {
  throw Error(ErrorCode::invalid_argument,
              what + ": expected the text that the snapshot's other side gave, found another");
}

/// Reads a document of one kind; what is not as expected is refused under its name.
class TextReader {
 public:
  TextReader(std::string what, std::string_view text) : what_(std::move(what)) {
    try {
      document_ = from_json(text, what_);
    } catch (const Error&) {
      refuse_text(what_);
    }
    const auto* kind = as<Value::Object>(document_).find("kind");
    if (kind == nullptr || as<std::string>(*kind) != what_) refuse_text(what_);
  }

  template <class T>
  const T& as(const Value& value) const {
    const T* found = value.get_if<T>();
    if (found == nullptr) refuse_text(what_);
    return *found;
  }
  const Value& at(std::string_view name) const {
    const Value* found = as<Value::Object>(document_).find(name);
    if (found == nullptr) refuse_text(what_);
    return *found;
  }
  const std::string& text(std::string_view name) const { return as<std::string>(at(name)); }
  std::int64_t number(std::string_view name) const { return as<std::int64_t>(at(name)); }
  const std::vector<Value>& items(const Value& value, std::optional<std::size_t> count = {}) const {
    const auto& list = as<Value::List>(value).items;
    if (count && list.size() != *count) refuse_text(what_);
    return list;
  }
  Shape numbers(const Value& value) const {
    Shape numbers;
    for (const Value& item : items(value)) {
      numbers.push_back(as<std::int64_t>(item));
      if (numbers.back() < 0) refuse_text(what_);
    }
    return numbers;
  }
  DType dtype(const Value& value) const {
    const auto found = dtype_from_name(as<std::string>(value));
    if (!found) refuse_text(what_);
    return *found;
  }

 private:
  std::string what_;
  Value document_;
};

Value::Object document(std::string_view kind) {
  Value::Object made;
  made.members.emplace_back("kind", Value(kind));
  return made;
}

template <class Numbers>
Value list_of(const Numbers& numbers) {
  Value::List list;
  for (const auto number : numbers) list.items.emplace_back(static_cast<std::int64_t>(number));
  return list;
}

Value tuple_of(std::vector<Value> items) { return Value::List{std::move(items)}; }

// --- what a rank says of its part ---

/// An entry that is marked as replicated.
struct Candidate {
  std::string path;
  std::string description;           ///< must be the same on all ranks
  std::string group;                 ///< of entries whose bytes are the same
  std::vector<std::uint64_t> sizes;  ///< bytes of each chunk; of others one number
};

struct Box {
  Shape offsets;
  Shape sizes;
  auto operator<=>(const Box&) const = default;
};

struct ShardedCandidate {
  std::string path;
  std::string description;
  DType dtype = DType::float32;
  Shape shape;
  std::vector<Box> boxes;  ///< those with elements

  std::uint64_t bytes_of(const Box& box) const { return nbytes_of(dtype, box.sizes); }
};

constexpr std::string_view kOutline = "outline of a snapshot";
constexpr std::string_view kTicket = "ticket of a snapshot";
constexpr std::string_view kReceipt = "receipt of a snapshot";

struct Outline {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::uint64_t own_bytes = 0;  ///< of what only this rank has
  std::vector<Candidate> replicated;
  std::vector<ShardedCandidate> sharded;

  std::string to_text() const {
    Value::Object made = document(kOutline);
    made.members.emplace_back("rank", rank);
    made.members.emplace_back("world_size", world_size);
    made.members.emplace_back("own_bytes", static_cast<std::int64_t>(own_bytes));
    Value::List entries;
    for (const Candidate& entry : replicated) {
      entries.items.push_back(
          tuple_of({entry.path, entry.description, entry.group, list_of(entry.sizes)}));
    }
    made.members.emplace_back("replicated", std::move(entries));
    Value::List tensors;
    for (const ShardedCandidate& tensor : sharded) {
      Value::List boxes;
      for (const Box& box : tensor.boxes) {
        boxes.items.push_back(tuple_of({list_of(box.offsets), list_of(box.sizes)}));
      }
      tensors.items.push_back(
          tuple_of({tensor.path, tensor.description, Value(to_string(tensor.dtype)),
                    list_of(tensor.shape), std::move(boxes)}));
    }
    made.members.emplace_back("sharded", std::move(tensors));
    return to_json(Value(std::move(made)));
  }

  static Outline parse(std::string_view text) {
    const TextReader reader{std::string(kOutline), text};
    Outline made;
    made.rank = reader.number("rank");
    made.world_size = reader.number("world_size");
    made.own_bytes = static_cast<std::uint64_t>(reader.number("own_bytes"));
    for (const Value& item : reader.items(reader.at("replicated"))) {
      const auto& fields = reader.items(item, 4);
      Candidate entry{reader.as<std::string>(fields[0]),
                      reader.as<std::string>(fields[1]),
                      reader.as<std::string>(fields[2]),
                      {}};
      for (const std::int64_t size : reader.numbers(fields[3])) {
        entry.sizes.push_back(static_cast<std::uint64_t>(size));
      }
      made.replicated.push_back(std::move(entry));
    }
    for (const Value& item : reader.items(reader.at("sharded"))) {
      const auto& fields = reader.items(item, 5);
      ShardedCandidate tensor{reader.as<std::string>(fields[0]),
                              reader.as<std::string>(fields[1]),
                              reader.dtype(fields[2]),
                              reader.numbers(fields[3]),
                              {}};
      for (const Value& box : reader.items(fields[4])) {
        const auto& ends = reader.items(box, 2);
        tensor.boxes.push_back({reader.numbers(ends[0]), reader.numbers(ends[1])});
      }
      made.sharded.push_back(std::move(tensor));
    }
    return made;
  }
};

std::string range_text(const TensorEntry& entry) {
  if (!entry.byte_range) return entry.location;
  return entry.location + " " + std::to_string(entry.byte_range->first);
}

/// Makes the outline of a plan in which everything is planned.
class Outliner {
 public:
  Outliner(const Plan& plan, const TensorDict& tree, const PlannedRank& rank) {
    for (const DataFile& file : plan.files) files_.emplace(file.location, &file);
    outline_.rank = rank.rank;
    outline_.world_size = rank.world_size;
    std::uint64_t shared_bytes = 0;
    for (const auto& [path, entry] : plan.manifest.entries) {
      if (is_container(entry.type) || is_sharded(entry.type) || !entry.tensor.replicated) continue;
      Candidate candidate = candidate_of(path.substr(path.find('/') + 1), entry);
      if (groups_.insert(candidate.group).second) {
        for (const std::uint64_t size : candidate.sizes) shared_bytes += size;
      }
      outline_.replicated.push_back(std::move(candidate));
    }
    for (const SnapshotShards& shards : rank.shards) {
      outline_.sharded.push_back(sharded(tree, shards));
      for (const Box& box : outline_.sharded.back().boxes) {
        shared_bytes += outline_.sharded.back().bytes_of(box);
      }
    }
    outline_.own_bytes = plan.num_bytes - std::min(plan.num_bytes, shared_bytes);
  }

  Outline take() { return std::move(outline_); }

 private:
  Candidate candidate_of(std::string path, const Entry& entry) const {
    Candidate made{std::move(path), {}, {}, {}};
    switch (entry.type) {
      case EntryType::tensor:
      case EntryType::chunked_tensor:
        made.description = entry.tensor.dtype + " " + base::list_text(entry.tensor.shape);
        made.group = made.path;
        if (entry.type == EntryType::tensor) {
          made.group = range_text(entry.tensor);
        } else if (!entry.pieces.empty()) {
          made.group = range_text(entry.pieces.front().tensor);
        }
        for (const Piece& piece : entry.pieces) made.sizes.push_back(bytes_of(piece.tensor));
        if (made.sizes.empty()) made.sizes.push_back(bytes_of(entry.tensor));
        break;
      case EntryType::object: {
        const DataFile& file = *files_.at(entry.tensor.location);
        // The first record is the pickle: all but the bytes of tensors.
        made.description =
            entry.obj_type + " of digest " +
            base::hex16(base::xxh3(std::as_bytes(std::span(file.object.front().head))));
        made.group = entry.tensor.location;
        made.sizes.push_back(kObjectBytes + leaf_bytes(file));
        break;
      }
      default:
        made.description = entry.readable.empty() ? base::quote(entry.value) : entry.readable;
        made.group = made.path;
        made.sizes.push_back(0);
    }
    return made;
  }

  std::uint64_t bytes_of(const TensorEntry& entry) const {
    if (entry.serializer == "torch_save") return leaf_bytes(*files_.at(entry.location));
    return nbytes_of(*dtype_from_name(std::string_view(entry.dtype).substr(6)), entry.shape);
  }

  static std::uint64_t leaf_bytes(const DataFile& file) {
    std::uint64_t total = 0;
    for (const auto& record : file.object) {
      if (record.leaf) total += record.leaf->nbytes();
    }
    return total;
  }

  static ShardedCandidate sharded(const TensorDict& tree, const SnapshotShards& shards) {
    ShardedCandidate made{path_of(shards.key), {}, shards.dtype, shards.shape, {}};
    made.description = std::string(shards.is_dtensor ? "a DTensor of " : "a ShardedTensor of ") +
                       to_string(shards.dtype) + " " + base::list_text(shards.shape);
    if (shards.is_dtensor) {
      made.description += " over a mesh of " + base::list_text(shards.mesh_shape) + ": " +
                          base::list_text(shards.mesh) + ", cut along";
      for (const auto& dims : shards.dim_map) made.description += " " + base::list_text(dims);
    }
    std::size_t number = 0;
    std::get<TensorDict>(tree.get(shards.key))
        .for_each([&](const std::string&, const TensorDict::Item& part) {
          const Leaf& leaf = std::get<Leaf>(part);
          const Shape& offsets = shards.offsets[number++];
          if (leaf.nbytes() != 0) made.boxes.push_back({offsets, leaf.shape()});
        });
    return made;
  }

  std::unordered_map<std::string, const DataFile*> files_;
  std::set<std::string> groups_;
  Outline outline_;
};

// --- who writes what ---

/// Shares the work of what several ranks have, to the rank that has least so far.
class Assigner {
 public:
  Assigner(std::string where, const std::vector<Outline>& outlines)
      : where_(std::move(where)), outlines_(outlines) {
    for (const Outline& outline : outlines) loads_.push_back(outline.own_bytes);
    share_boxes();
    share_replicated();
  }

  Assignment take() { return std::move(made_); }

  /// The approximate size of all files.
  std::uint64_t num_bytes() const {
    std::uint64_t total = 0;
    for (const std::uint64_t load : loads_) total += load;
    return total;
  }

 private:
  using Holders = std::map<Box, std::vector<std::int64_t>>;

  [[noreturn]] void fail(const std::string& path, const std::string& what) const {
    throw base::invalid_argument(where_).part("entry ", base::quote(path)).problem(what);
  }
  [[noreturn]] void fail_other(const std::string& path, std::int64_t rank,
                               const std::string& expected, const std::string& found) const {
    fail(path, "it differs between ranks: expected " + expected + " as on rank 0, found " + found +
                   " on rank " + std::to_string(rank));
  }

  std::int64_t least_loaded(const std::vector<std::int64_t>* among = nullptr) const {
    const auto load = [&](std::int64_t rank) { return loads_[static_cast<std::size_t>(rank)]; };
    if (among != nullptr) return *std::ranges::min_element(*among, {}, load);
    return std::ranges::min_element(loads_) - loads_.begin();
  }

  void share_boxes() {
    struct Tensor {
      const ShardedCandidate* first = nullptr;
      Holders holders;
    };
    std::map<std::string, Tensor> tensors;
    for (const Outline& outline : outlines_) {
      for (const ShardedCandidate& candidate : outline.sharded) {
        Tensor& tensor = tensors[candidate.path];
        if (tensor.first == nullptr) tensor.first = &candidate;
        if (tensor.first->description != candidate.description) {
          fail(candidate.path, "its shards do not belong together: expected on all ranks " +
                                   tensor.first->description + ", found " + candidate.description +
                                   " on rank " + std::to_string(outline.rank));
        }
        for (const Box& box : candidate.boxes) tensor.holders[box].push_back(outline.rank);
      }
    }
    for (auto& [path, tensor] : tensors) {
      require_cover(path, *tensor.first, tensor.holders);
      std::vector<Assignment::SharedBox> shared;
      for (auto& [box, holders] : tensor.holders) {
        const std::int64_t rank = least_loaded(&holders);
        loads_[static_cast<std::size_t>(rank)] += tensor.first->bytes_of(box);
        if (holders.size() > 1) shared.push_back({box.offsets, box.sizes, rank});
      }
      if (!shared.empty()) made_.boxes.emplace(path, std::move(shared));
    }
  }

  /// Each element in one of the boxes, as readers of the shards want it.
  void require_cover(const std::string& path, const ShardedCandidate& tensor,
                     const Holders& holders) const {
    constexpr std::size_t kElementBytes = 16;
    std::vector<TensorPiece> pieces;
    for (const auto& [box, ranks] : holders) {
      pieces.push_back({box.offsets, Leaf(Tensor(tensor.dtype, box.sizes, Shape(box.sizes.size()),
                                                 Buffer::allocate(kElementBytes), 0))});
    }
    try {
      AssembledSource::assemble(tensor.dtype, tensor.shape, std::move(pieces),
                                where_ + ": entry " + base::quote(path));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;
      throw Error(ErrorCode::invalid_argument, error.what());
    }
  }

  /// A chunk, or what has none, with all entries over the same bytes.
  struct Unit {
    std::uint64_t size = 0;
    std::size_t piece = 0;
    std::vector<const Candidate*> entries;
  };

  void share_replicated() {
    std::map<std::pair<std::string, std::size_t>, Unit> units;  // by group and piece
    std::vector<std::unordered_map<std::string_view, const Candidate*>> of_ranks;
    for (const Outline& outline : outlines_) {
      auto& of_rank = of_ranks.emplace_back();
      for (const Candidate& entry : outline.replicated) of_rank.emplace(entry.path, &entry);
    }
    for (const Candidate& entry : outlines_.front().replicated) {
      if (!is_on_all_ranks(entry, of_ranks)) continue;
      made_.replicated.emplace(entry.path, std::vector<std::int64_t>(entry.sizes.size()));
      for (std::size_t i = 0; i < entry.sizes.size(); ++i) {
        Unit& unit = units[{entry.group, i}];
        unit.size = std::max(unit.size, entry.sizes[i]);
        unit.piece = i;
        unit.entries.push_back(&entry);
      }
    }
    std::vector<const Unit*> ordered;
    for (const auto& [key, unit] : units) ordered.push_back(&unit);
    std::ranges::stable_sort(ordered, std::greater<>(), &Unit::size);
    for (const Unit* unit : ordered) {
      const std::int64_t rank = unit->size == 0 ? 0 : least_loaded();
      loads_[static_cast<std::size_t>(rank)] += unit->size;
      for (const Candidate* entry : unit->entries) {
        made_.replicated.find(entry->path)->second[unit->piece] = rank;
      }
    }
  }

  bool is_on_all_ranks(
      const Candidate& entry,
      const std::vector<std::unordered_map<std::string_view, const Candidate*>>& of_ranks) const {
    for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
      if (!of_ranks[rank].contains(entry.path)) return false;
    }
    for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
      const Candidate& other = *of_ranks[rank].at(entry.path);
      if (other.description != entry.description) {
        fail_other(entry.path, static_cast<std::int64_t>(rank), entry.description,
                   other.description);
      }
      if (other.sizes.size() != entry.sizes.size()) {
        fail_other(entry.path, static_cast<std::int64_t>(rank),
                   std::to_string(entry.sizes.size()) + " chunks",
                   std::to_string(other.sizes.size()));
      }
    }
    return true;
  }

  std::string where_;
  const std::vector<Outline>& outlines_;
  std::vector<std::uint64_t> loads_;
  Assignment made_;
};

/// The message from the coordinator to all ranks.
struct Ticket {
  std::string id;
  std::string host;
  std::string staging;
  std::int64_t world_size = 1;
  bool durable = true;
  bool checksums = true;
  Assignment assignment;

  std::string to_text() const {
    Value::Object made = document(kTicket);
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
    const TextReader reader{std::string(kTicket), text};
    Ticket made;
    made.id = reader.text("id");
    made.host = base::from_base64(reader.text("host")).value_or("");
    made.staging = base::from_base64(reader.text("staging")).value_or("");
    made.world_size = reader.number("world_size");
    made.durable = reader.as<bool>(reader.at("durable"));
    made.checksums = reader.as<bool>(reader.at("checksums"));
    for (const auto& [path, ranks] : reader.as<Value::Object>(reader.at("replicated")).members) {
      made.assignment.replicated.emplace(path, reader.numbers(ranks));
    }
    for (const auto& [path, list] : reader.as<Value::Object>(reader.at("boxes")).members) {
      auto& shared = made.assignment.boxes[path];
      for (const Value& item : reader.items(list)) {
        const auto& fields = reader.items(item, 3);
        shared.push_back({reader.numbers(fields[0]), reader.numbers(fields[1]),
                          reader.as<std::int64_t>(fields[2])});
      }
    }
    return made;
  }
};

/// The message from a rank to the coordinator: what it has written.
struct Receipt {
  std::string id;
  std::int64_t rank = 0;
  std::string manifest;   ///< as in `.snapshot_metadata`
  std::string checksums;  ///< as in `%checksums`
  std::string notes;      ///< as in `%notes.json`; may be empty

  std::string to_text() const {
    Value::Object made = document(kReceipt);
    made.members.emplace_back("id", id);
    made.members.emplace_back("rank", rank);
    made.members.emplace_back("manifest", manifest);
    made.members.emplace_back("checksums", base::base64(checksums));
    made.members.emplace_back("notes", notes);
    return to_json(Value(std::move(made)));
  }

  static Receipt parse(std::string_view text) {
    const TextReader reader{std::string(kReceipt), text};
    return {reader.text("id"), reader.number("rank"), reader.text("manifest"),
            base::from_base64(reader.text("checksums")).value_or(""), reader.text("notes")};
  }
};

/// Puts together what the ranks have written.
class Merger {
 public:
  Merger(std::string where, std::int64_t world_size) : where_(std::move(where)) {
    manifest_.world_size = world_size;
  }

  void add(const Receipt& receipt) {
    const std::string where = where_ + ": receipt of rank " + std::to_string(receipt.rank);
    for (auto& [path, entry] : parse_manifest(receipt.manifest, where).entries) {
      const auto [at, is_new] = positions_.emplace(path, entries_.size());
      if (is_new) {
        entries_.emplace_back(path, std::move(entry));
        continue;
      }
      std::vector<Piece>& pieces = entries_[at->second].second.pieces;
      pieces.insert(pieces.end(), std::make_move_iterator(entry.pieces.begin()),
                    std::make_move_iterator(entry.pieces.end()));
      std::ranges::sort(pieces, {}, &Piece::offsets);
    }
    if (!receipt.checksums.empty()) {
      std::vector<formats::ChecksumLine> lines = formats::parse_checksums(receipt.checksums, where);
      lines_.insert(lines_.end(), std::make_move_iterator(lines.begin()),
                    std::make_move_iterator(lines.end()));
    }
    if (!receipt.notes.empty()) add_notes(from_json(receipt.notes, where));
  }

  /// Replicated entries must be there, with all their chunks.
  void require(const Assignment& assignment) const {
    for (const auto& [path, writers] : assignment.replicated) {
      const Entry* entry = find("0/" + path);
      const bool is_whole = entry != nullptr && (entry->type != EntryType::chunked_tensor ||
                                                 numel_of(entry->tensor.shape) == 0 ||
                                                 entry->pieces.size() == writers.size());
      if (!is_whole) fail(path, "of rank " + std::to_string(writers.front()));
    }
  }

  /// Boxes that one rank wrote for several are entries of each of these.
  void share(const Assignment& assignment, const std::vector<Outline>& outlines) {
    for (const auto& [path, boxes] : assignment.boxes) {
      for (const Assignment::SharedBox& box : boxes) {
        const std::vector<Piece> pieces = pieces_in(path, box);
        for (const Outline& outline : outlines) {
          if (outline.rank == box.rank || !has_box(outline, path, box)) continue;
          const auto at = positions_.find(std::to_string(outline.rank) + "/" + path);
          if (at == positions_.end()) fail(path, "of rank " + std::to_string(outline.rank));
          auto& of_rank = entries_[at->second].second.pieces;
          of_rank.insert(of_rank.end(), pieces.begin(), pieces.end());
        }
      }
    }
    for (const Outline& outline : outlines) require_boxes(outline);
  }

  void write(os::Directory& folder, const SnapshotOptions& options) {
    for (auto& [path, entry] : entries_) manifest_.add(std::move(path), std::move(entry));
    const std::string notes =
        notes_.members.empty() ? std::string() : to_json(Value(std::move(notes_)));
    write_documents(manifest_, notes, std::move(lines_), folder, options);
  }

 private:
  [[noreturn]] void fail(const std::string& path, const std::string& whose) const {
    throw base::invalid_argument(where_)
        .part("entry ", base::quote(path))
        .expected("it in the receipt ", whose)
        .found("it missing there, or in parts");
  }

  const Entry* find(const std::string& path) const {
    const auto at = positions_.find(path);
    return at == positions_.end() ? nullptr : &entries_[at->second].second;
  }

  std::vector<Piece> pieces_in(const std::string& path, const Assignment::SharedBox& box) const {
    std::vector<Piece> found;
    const Entry* entry = find(std::to_string(box.rank) + "/" + path);
    if (entry == nullptr) fail(path, "of rank " + std::to_string(box.rank));
    for (const Piece& piece : entry->pieces) {
      bool is_inside = piece.offsets.size() == box.offsets.size();
      for (std::size_t d = 0; is_inside && d < box.offsets.size(); ++d) {
        is_inside = piece.offsets[d] >= box.offsets[d] &&
                    piece.offsets[d] + piece.sizes[d] <= box.offsets[d] + box.sizes[d];
      }
      if (is_inside) found.push_back(piece);
    }
    return found;
  }

  static bool has_box(const Outline& outline, const std::string& path,
                      const Assignment::SharedBox& box) {
    const auto tensor = std::ranges::find(outline.sharded, path, &ShardedCandidate::path);
    if (tensor == outline.sharded.end()) return false;
    return std::ranges::find(tensor->boxes, Box{box.offsets, box.sizes}) != tensor->boxes.end();
  }

  void require_boxes(const Outline& outline) const {
    for (const ShardedCandidate& tensor : outline.sharded) {
      std::int64_t expected = 0;
      for (const Box& box : tensor.boxes) expected += numel_of(box.sizes);
      std::int64_t found = 0;
      const Entry* entry = find(std::to_string(outline.rank) + "/" + tensor.path);
      if (entry != nullptr) {
        for (const Piece& piece : entry->pieces) found += numel_of(piece.sizes);
      }
      if (entry == nullptr || found != expected) {
        fail(tensor.path, "of rank " + std::to_string(outline.rank));
      }
    }
  }

  /// Paths in the notes begin with the rank, so that no two ranks have the same.
  void add_notes(Value notes) {
    auto* document = std::get_if<Value::Object>(&notes.data());
    if (document == nullptr) return;
    for (auto& [name, part] : document->members) {
      const auto known =
          std::ranges::find(notes_.members, name, &std::pair<std::string, Value>::first);
      if (known == notes_.members.end()) {
        notes_.members.emplace_back(name, std::move(part));
      } else if (auto* object = std::get_if<Value::Object>(&part.data())) {
        auto& members = std::get<Value::Object>(known->second.data()).members;
        std::ranges::move(object->members, std::back_inserter(members));
      } else if (auto* list = std::get_if<Value::List>(&part.data())) {
        auto& items = std::get<Value::List>(known->second.data()).items;
        std::ranges::move(list->items, std::back_inserter(items));
      }
    }
  }

  std::string where_;
  Manifest manifest_;
  std::vector<std::pair<std::string, Entry>> entries_;
  std::unordered_map<std::string, std::size_t> positions_;
  std::vector<formats::ChecksumLine> lines_;
  Value::Object notes_;
};

}  // namespace

class SnapshotPart::State {
 public:
  State(const TensorDict& tree, std::int64_t rank, std::int64_t world_size,
        std::vector<SnapshotShards> shards, const SnapshotOptions& options)
      : tree_(tree), options_(options) {
    if (world_size < 1 || rank < 0 || rank >= world_size) {
      throw Error(ErrorCode::invalid_argument,
                  "snapshot: rank: expected one below the number of ranks, found " +
                      std::to_string(rank) + " of " + std::to_string(world_size));
    }
    rank_.rank = rank;
    rank_.world_size = world_size;
    rank_.shards = std::move(shards);
    outline_ = Outliner(plan_snapshot(tree_, options_, rank_), tree_, rank_).take().to_text();
  }

  const std::string& outline() const noexcept { return outline_; }

  std::string write(std::string_view text, Monitor* monitor) {
    const Ticket ticket = Ticket::parse(text);
    if (ticket.world_size != rank_.world_size) {
      throw Error(ErrorCode::invalid_argument,
                  "ticket of a snapshot: expected one for " + std::to_string(rank_.world_size) +
                      " ranks, found " + std::to_string(ticket.world_size));
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
      if (marker.valid() && marker.read_all(kObjectBytes) == ticket.id) return root;
      found = "that of another save";
    } catch (const Error& error) {
      if (error.code() != ErrorCode::file_not_found) throw;
    }
    throw Error::io(ENOENT, ticket.staging,
                    ticket.staging + ": rank " + std::to_string(rank_.rank) + " on host " +
                        base::quote(os::host_name()) +
                        ": expected the folder that rank 0 on host " + base::quote(ticket.host) +
                        " has made, found " + found + "; all ranks need one shared folder");
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
          .expected("the outlines of all ranks")
          .found(outlines_.size());
    }
    Assigner assigner(path_.string(), outlines_);
    ticket_.assignment = assigner.take();
    formats::refuse_existing(path_, options_.overwrite);
    refuse_foreign(path_);
    replacement_.emplace(path_, assigner.num_bytes(), foreign_in);
    ticket_.id = base::hex16(os::random_number());
    ticket_.host = os::host_name();
    ticket_.staging = (std::filesystem::absolute(os::resolve_link(path_)).parent_path() /
                       replacement_->hidden_name())
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
    if (receipts.size() != outlines_.size()) {
      throw base::invalid_argument(path_)
          .expected("the receipts of ", outlines_.size(), " ranks")
          .found(receipts.size());
    }
    Merger merger(path_.string(), ticket_.world_size);
    for (std::size_t i = 0; i < receipts.size(); ++i) {
      const Receipt receipt = Receipt::parse(receipts[i]);
      require_rank(i, receipt.rank);
      if (receipt.id != ticket_.id) {
        throw base::invalid_argument(path_)
            .part("receipt of rank ", i)
            .expected("one of this save")
            .found("one of another");
      }
      merger.add(receipt);
    }
    merger.require(ticket_.assignment);
    merger.share(ticket_.assignment, outlines_);
    replacement_->folder().remove_file(std::string(kStagingName));
    merger.write(replacement_->folder(), options_);
    replacement_->publish(options_.durable);
    replacement_.reset();
  }

 private:
  void require_rank(std::size_t position, std::int64_t rank) const {
    if (rank == static_cast<std::int64_t>(position)) return;
    throw base::invalid_argument(path_)
        .part("ranks")
        .expected("each once and in order")
        .found("rank ", rank, " at position ", position);
  }

  Path path_;
  SnapshotOptions options_;
  std::vector<Outline> outlines_;
  Ticket ticket_;
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
