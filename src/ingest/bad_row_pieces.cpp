#include "ingest/bad_row_pieces.hpp"

#include <span>
#include <string_view>
#include <utility>

namespace tenfold {
namespace {

/// Of each stream; more goes to a file.
constexpr std::size_t kPiecesInMemoryBytes = std::size_t{64} << 10;

void append_member(Spool& spool, std::string_view text) {
  const auto size = static_cast<std::uint64_t>(text.size());
  spool.append(std::as_bytes(std::span(&size, 1)));
  spool.append(std::as_bytes(std::span(text)));
}

std::string read_member(const Spool& spool, std::uint64_t& at) {
  std::uint64_t size = 0;
  spool.read(at, std::as_writable_bytes(std::span(&size, 1)));
  std::string text(static_cast<std::size_t>(size), '\0');
  spool.read(at + sizeof size, std::as_writable_bytes(std::span(text)));
  at += sizeof size + size;
  return text;
}

/// The members of `object` behind those of `all`.
void join_members(std::string& all, std::string_view object) {
  const std::string_view members = object.substr(1, object.size() - 2);
  if (members.empty()) return;
  all.insert(all.size() - 1, (all.size() > 2 ? ", " : "") + std::string(members));
}

}  // namespace

void BadRowPieces::begin_stream() { streams_.emplace_back(folder_, kPiecesInMemoryBytes); }

void BadRowPieces::add(const Piece& piece) {
  Spool& spool = streams_.back();
  append_member(spool, piece.column);
  append_member(spool, piece.error);
  append_member(spool, piece.text);
}

void BadRowPieces::tell_all(std::size_t num_rows,
                            const std::function<void(const Piece&)>& tell) const {
  std::vector<std::uint64_t> at(streams_.size());
  for (std::size_t row = 0; row < num_rows; ++row) {
    Piece whole;
    whole.text = "{}";
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      std::string column = read_member(streams_[i], at[i]);
      std::string error = read_member(streams_[i], at[i]);
      join_members(whole.text, read_member(streams_[i], at[i]));
      if (!whole.column.empty() || column.empty()) continue;
      whole.column = std::move(column);
      whole.error = std::move(error);
    }
    tell(whole);
  }
}

}  // namespace tenfold
