// Arbitrary bytes as the schema, index and keys of a dictionary. A lookup must return the row of
// the requested key, no row, or an Error. The input begins with the schema, which ends at the first
// 0xFF, because JSON never contains this byte. The next byte gives the number of rows, whether the
// index gets a valid header, and the type of the keys. The rest is the index, and then the keys:
// end offsets and bytes of strings, or integers.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/mapped_dict.hpp>
#include <tenfold/warnings.hpp>

#include "core/notes/notes.hpp"
#include "dict/index.hpp"

namespace {

using namespace tenfold;

constexpr std::int64_t kBuckets = static_cast<std::int64_t>(kDictTailBuckets) + 3;

/// Takes a tensor of 8-byte elements from `input`. If `input` is too short, zeros follow.
Tensor take_words(std::string_view& input, Shape shape) {
  Tensor words = Tensor::zeros(DType::int64, std::move(shape));
  const std::size_t size = std::min(input.size(), static_cast<std::size_t>(words.nbytes()));
  if (size > 0) std::memcpy(words.mutable_raw_data(), input.data(), size);
  input.remove_prefix(size);
  return words;
}

/// Writes a valid header, because the checks of the header would otherwise refuse most inputs.
void seal(const Tensor& index, std::uint64_t num_rows) {
  std::array<std::uint64_t, kDictSlots> header{};
  write_dict_header(header, 7, static_cast<std::uint64_t>(kBuckets - 1) - kDictTailBuckets,
                    num_rows, 0);
  std::memcpy(index.mutable_raw_data() + index.nbytes() - sizeof header, header.data(),
              sizeof header);
}

Leaf unbatched(Tensor tensor) {
  Leaf leaf(std::move(tensor));
  leaf.mark_unbatched();
  return leaf;
}

TensorDict tree_of(std::string_view input, std::string& text) {
  const std::size_t end = input.find('\xFF');
  NodeInfo info;
  info.schema = from_json(input.substr(0, end), "fuzz");
  input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
  const auto byte = static_cast<std::uint8_t>(input.empty() ? 0 : input.front());
  if (!input.empty()) input.remove_prefix(1);
  const std::int64_t num_rows = byte & 15U;
  info.batch_size = {num_rows};
  TensorDict tree(info);
  Tensor index = take_words(input, {kBuckets, static_cast<std::int64_t>(kDictSlots)});
  if ((byte & 16U) == 0) seal(index, static_cast<std::uint64_t>(num_rows));
  tree.set("key.index", TensorDict::Item(unbatched(std::move(index))));
  const Tensor words = take_words(input, {num_rows});
  tree.set((byte & 32U) == 0 ? "key.end" : "key", words);
  text = input;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(input.data());
  if ((byte & 32U) == 0) {
    tree.set("key", TensorDict::Item(unbatched(
                        Tensor::from(std::span<const std::uint8_t>(bytes, input.size())))));
  }
  tree.set("value", Tensor::zeros(DType::float32, {num_rows, 2}));
  return tree;
}

/// Checks that each row found has the requested key.
template <class Key>
void look_up(const MappedDict& dict, std::span<const Key> keys) {
  const std::vector<std::int64_t> rows = dict.rows(keys);
  const Dataset rows_of_all = dict.dataset();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (rows[i] < 0) continue;
    const Batch row = rows_of_all.rows(std::span(&rows[i], 1));
    if constexpr (std::is_same_v<Key, std::string_view>) {
      if (row.text("key", 0) != keys[i]) std::abort();
    } else {
      if (row.at("key").data<std::int64_t>()[0] != keys[i]) std::abort();
    }
  }
  static_cast<void>(dict.get_many(keys));
}

void use(const MappedDict& dict, std::string_view text) {
  static_cast<void>(dict.check());
  static_cast<void>(dict.ordered_rows());
  if (dict.key_type() == DictKeyType::int64) {
    std::vector<std::int64_t> keys = {0, 1, -1, 7};
    const Tensor stored = dict.dataset().column("key");
    for (const std::int64_t key : stored.span<std::int64_t>()) keys.push_back(key);
    look_up(dict, std::span<const std::int64_t>(keys));
    return;
  }
  std::vector<std::string_view> keys = {"", "a", text};
  for (std::size_t i = 0; i < text.size() && i < 40; ++i) {
    keys.push_back(text.substr(0, i));
    keys.push_back(text.substr(i, 3));
  }
  look_up(dict, std::span<const std::string_view>(keys));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_warning_handler([](const std::string&) {});
  try {
    std::string text;
    const MappedDict dict(tree_of({reinterpret_cast<const char*>(data), size}, text));
    use(dict, text);
  } catch (const Error&) {
  }
  return 0;
}
