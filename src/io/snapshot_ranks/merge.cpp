#include "io/snapshot_ranks/merge.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <tenfold/error.hpp>

#include "base/base64.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/value/value_json.hpp"
#include "io/snapshot_ranks/message.hpp"

namespace tenfold::detail::snapshot_ranks {

using namespace formats::snapshot;

namespace {

constexpr std::string_view kReceipt = "receipt of a snapshot";

/// Merges the receipts of all ranks.
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
    if (!receipt.notes.empty()) add_notes(from_json(receipt.notes, where), where);
  }

  /// Throws if a replicated entry or one of its chunks is missing.
  void require(const Assignment& assignment) const {
    for (const auto& [path, writers] : assignment.replicated) {
      const Entry* entry = find("0/" + path);
      const bool is_whole = entry != nullptr && (entry->type != EntryType::chunked_tensor ||
                                                 numel_of(entry->tensor.shape) == 0 ||
                                                 entry->pieces.size() == writers.size());
      if (!is_whole) fail(path, writers);
    }
  }

  /// Adds boxes that one rank wrote for several ranks to the entries of each of these ranks.
  void share(const Assignment& assignment, const std::vector<Outline>& outlines) {
    // A rank, and its boxes of the tensor.
    using Holder = std::pair<std::int64_t, const ShardedCandidate*>;
    std::unordered_map<std::string_view, std::vector<Holder>> holders;
    for (const Outline& outline : outlines) {
      for (const ShardedCandidate& tensor : outline.sharded) {
        holders[tensor.path].emplace_back(outline.rank, &tensor);
      }
    }
    for (const auto& [path, boxes] : assignment.boxes) {
      std::map<Box, std::vector<std::int64_t>> ranks;
      for (const auto& [rank, tensor] : holders[path]) {
        for (const Box& box : tensor->boxes) ranks[box].push_back(rank);
      }
      for (const Assignment::SharedBox& box : boxes) {
        const std::vector<Piece> pieces = pieces_in(path, box);
        for (const std::int64_t rank : ranks[Box{box.offsets, box.sizes}]) {
          if (rank == box.rank) continue;
          const auto at = positions_.find(std::to_string(rank) + "/" + path);
          if (at == positions_.end()) fail(path, {rank});
          auto& of_rank = entries_[at->second].second.pieces;
          of_rank.insert(of_rank.end(), pieces.begin(), pieces.end());
        }
      }
    }
    for (const Outline& outline : outlines) require_boxes(outline);
  }

  Merged take() {
    for (auto& [path, entry] : entries_) manifest_.add(std::move(path), std::move(entry));
    std::string notes = notes_.members.empty() ? std::string() : to_json(Value(std::move(notes_)));
    return {std::move(manifest_), std::move(notes), std::move(lines_)};
  }

 private:
  /// Throws because the receipts lack the entry at `path` or a part of it. `writers`: the ranks
  /// whose receipts should contain it.
  [[noreturn]] void fail(const std::string& path, std::vector<std::int64_t> writers) const {
    std::ranges::sort(writers);
    const auto repeated = std::ranges::unique(writers);
    writers.erase(repeated.begin(), repeated.end());
    throw base::invalid_argument(where_)
        .part("entry ", base::quote(path))
        .expected("the complete entry in the ",
                  (writers.size() == 1 ? "receipt of rank " + std::to_string(writers.front())
                                       : "receipts of ranks " + base::list_text(writers)))
        .found("none, or a part of it");
  }

  const Entry* find(const std::string& path) const {
    const auto at = positions_.find(path);
    return at == positions_.end() ? nullptr : &entries_[at->second].second;
  }

  std::vector<Piece> pieces_in(const std::string& path, const Assignment::SharedBox& box) const {
    std::vector<Piece> found;
    const Entry* entry = find(std::to_string(box.rank) + "/" + path);
    if (entry == nullptr) fail(path, {box.rank});
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

  void require_boxes(const Outline& outline) const {
    for (const ShardedCandidate& tensor : outline.sharded) {
      std::int64_t expected = 0;
      for (const Box& box : tensor.boxes) expected += numel_of(box.sizes);
      std::int64_t found = 0;
      const Entry* entry = find(std::to_string(outline.rank) + "/" + tensor.path);
      if (entry != nullptr) {
        for (const Piece& piece : entry->pieces) found += numel_of(piece.sizes);
      }
      if (entry == nullptr || found != expected) fail(tensor.path, {outline.rank});
    }
  }

  /// Adds the notes document of one rank. Paths in the document begin with the rank, so they are
  /// unique. Its member "metadata" has no paths, because it belongs to the tree of all ranks: for
  /// each key, the value of the first rank that has the key is used.
  void add_notes(Value notes, const std::string& where) {
    auto* document = std::get_if<Value::Object>(&notes.data());
    if (document == nullptr) return;
    for (auto& [name, part] : document->members) {
      const auto known =
          std::ranges::find(notes_.members, name, &std::pair<std::string, Value>::first);
      if (known == notes_.members.end()) {
        notes_.members.emplace_back(name, std::move(part));
      } else if (auto* object = std::get_if<Value::Object>(&part.data())) {
        auto& members = same_type<Value::Object>(known->second, where).members;
        if (name == "metadata") {
          add_metadata(object->members, members, where);
        } else {
          std::ranges::move(object->members, std::back_inserter(members));
        }
      } else if (auto* list = std::get_if<Value::List>(&part.data())) {
        auto& items = same_type<Value::List>(known->second, where).items;
        std::ranges::move(list->items, std::back_inserter(items));
      }
    }
  }

  /// Returns `known`, a member of the merged notes of earlier ranks, as `Type`. Throws
  /// Error(corrupt) if it has another type.
  template <class Type>
  static Type& same_type(Value& known, const std::string& where) {
    if (auto* held = std::get_if<Type>(&known.data())) return *held;
    throw base::corrupt(where).part("notes").expected("members of the same type on all ranks");
  }

  using Members = std::vector<std::pair<std::string, Value>>;

  static void add_metadata(Members& from, Members& to, const std::string& where) {
    for (auto& [key, text] : from) {
      const auto known = std::ranges::find(to, key, &Members::value_type::first);
      if (known == to.end()) {
        to.emplace_back(std::move(key), std::move(text));
      } else if (known->second != text) {
        warn_of_other(where, "metadata " + base::quote(key));
      }
    }
  }

  static void warn_of_other(const std::string& where, const std::string& part) {
    warn(where + ": " + part +
         ": ignored: expected the same value as on earlier ranks, found another");
  }

  std::string where_;
  Manifest manifest_;
  std::vector<std::pair<std::string, Entry>> entries_;
  std::unordered_map<std::string, std::size_t> positions_;
  std::vector<formats::ChecksumLine> lines_;
  Value::Object notes_;
};

}  // namespace

std::string Receipt::to_text() const {
  Value::Object made = message(kReceipt);
  made.members.emplace_back("id", id);
  made.members.emplace_back("rank", rank);
  made.members.emplace_back("manifest", manifest);
  made.members.emplace_back("checksums", base::base64(checksums));
  made.members.emplace_back("notes", notes);
  return to_json(Value(std::move(made)));
}

Receipt Receipt::parse(std::string_view text) {
  return read_message(kReceipt, text, [](const ValueReader& reader) {
    return Receipt{reader.at("id").text(), reader.at("rank").integer(),
                   reader.at("manifest").text(), decoded(reader.at("checksums")),
                   reader.at("notes").text()};
  });
}

Merged merge(const std::string& where, const std::vector<Receipt>& receipts,
             const Assignment& assignment, const std::vector<Outline>& outlines) {
  Merger merger(where, static_cast<std::int64_t>(outlines.size()));
  for (const Receipt& receipt : receipts) merger.add(receipt);
  merger.require(assignment);
  merger.share(assignment, outlines);
  return merger.take();
}

}  // namespace tenfold::detail::snapshot_ranks
