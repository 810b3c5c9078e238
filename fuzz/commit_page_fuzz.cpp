// Arbitrary bytes as the file `%commit` of a data set. They are refused, or the parsed state is
// consistent and survives a round trip. A second pass cuts or pads the bytes to the size of a page.
// A third one also fixes the checksums of the records and the header, because the code after their
// checks would otherwise hardly be reached.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include <tenfold/error.hpp>

#include "formats/folder/append/commit_page.hpp"

namespace {

namespace folder = tenfold::detail::formats::folder;

void use(std::span<const std::byte> bytes) {
  folder::CommitPage page;
  try {
    page = folder::parse_commit_page(bytes, "input");
  } catch (const tenfold::Error& error) {
    if (error.code() != tenfold::ErrorCode::corrupt) std::abort();
    return;
  }
  if (const folder::CommitState* state = folder::state_now(page)) {
    if (page.capacity > 0 && state->num_rows > page.capacity) std::abort();
  }
  const folder::CommitPage again = folder::parse_commit_page(folder::encode_page(page), "again");
  if (again.live != page.live || again.durable != page.durable) std::abort();
}

std::uint64_t number_at(const folder::CommitBytes& bytes, std::size_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

/// Returns a page with the records and the capacity of `bytes`, and with valid checksums.
folder::CommitBytes sealed(const folder::CommitBytes& bytes) {
  folder::CommitPage header;
  header.capacity = number_at(bytes, folder::kHeaderOffset + 16);
  folder::CommitBytes made = folder::encode_page(header);
  for (std::size_t offset = 0; offset < folder::kHeaderOffset; offset += folder::kSlotBytes) {
    folder::CommitState state;
    state.sequence = number_at(bytes, offset);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset) + 8, state.boot.size(),
                state.boot.begin());
    state.num_rows = number_at(bytes, offset + 24);
    state.written = number_at(bytes, offset + 32);
    state.busy_begin = number_at(bytes, offset + 40);
    state.busy_rows = number_at(bytes, offset + 48);
    const auto slot = folder::encode_slot(state);
    std::copy(slot.begin(), slot.end(), made.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  use(std::as_bytes(std::span(data, size)));
  folder::CommitBytes bytes{};
  if (size > 0) std::memcpy(bytes.data(), data, std::min(size, bytes.size()));
  use(bytes);
  use(sealed(bytes));
  return 0;
}
