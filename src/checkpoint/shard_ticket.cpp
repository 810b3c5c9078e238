#include "checkpoint/shard_ticket.hpp"

#include <charconv>
#include <limits>
#include <span>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "base/base64.hpp"
#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "codecs/json/json.hpp"
#include "core/value/value_json.hpp"
#include "core/value/value_reader.hpp"
#include "formats/shared/json_checksums.hpp"
#include "os/process.hpp"

namespace tenfold::checkpoint {
namespace {

namespace formats = detail::formats;

constexpr std::string_view kTicketMember = "tenfold_ticket";
constexpr std::int64_t kTicketVersion = 1;
constexpr std::string_view kReceiptWord = "tenfold_receipt";
constexpr std::size_t kSumDigits = 16;

[[noreturn]] void refuse_ticket() {
  throw base::invalid_argument()
      .part("ticket")
      .expected("the result of ShardedWriter::ticket()")
      .found("another string");
}

std::size_t number_below(const ValueReader& reader, std::size_t limit) {
  const std::uint64_t number = reader.count();
  if (number >= limit) refuse_ticket();
  return static_cast<std::size_t>(number);
}

std::string from_base64(const ValueReader& reader) {
  auto bytes = base::from_base64(reader.text());
  if (!bytes) refuse_ticket();
  return std::move(*bytes);
}

bool is_inside(const formats::Box& box, const Shape& shape) {
  if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (box.offsets[d] > shape[d] || box.sizes[d] > shape[d] - box.offsets[d]) return false;
  }
  return true;
}

}  // namespace

std::string ShardTicket::to_text() const {
  codecs::JsonWriter json(codecs::JsonStyle::utf8_compact);
  json.begin_object();
  json.member(kTicketMember, kTicketVersion);
  json.member("id", id);
  json.member("boot", boot);
  json.member("host", base::base64(host));
  // A path need not be UTF-8.
  json.member("staging", base::base64(staging));
  json.member("values", base::base64(values));
  json.member("is_folder", is_folder);
  json.member("durable", durable);
  json.member("checksums", checksums);
  json.member("are_crc32", are_crc32);
  json.member("shares_files", shares_files);
  json.member("rank", rank);
  json.member("num_ranks", num_ranks);
  json.key("files");
  json.begin_array();
  for (const StagedFile& file : files) {
    json.begin_array();
    json.string(base::base64(file.path));
    json.boolean(file.is_reserved);
    json.end_array();
  }
  json.end_array();
  json.key("tensors");
  json.begin_array();
  for (const TensorPlace& place : tensors) {
    json.begin_array();
    json.string(place.key);
    json.string(to_string(place.dtype));
    json.value(place.shape);
    json.value(place.file);
    json.value(place.offset_bytes);
    json.end_array();
  }
  json.end_array();
  json.key("boxes");
  json.begin_array();
  for (const Box& box : boxes) {
    json.begin_array();
    json.value(box.tensor);
    json.boolean(box.is_written);
    json.value(box.box.offsets);
    json.value(box.box.sizes);
    json.end_array();
  }
  json.end_array();
  json.end_object();
  return json.take();
}

ShardTicket ShardTicket::parse(std::string_view text) try {
  const base::Where where("", "ticket");
  const Value document = parse_value(text, where);
  const ValueReader reader(document, where);
  if (reader.at(kTicketMember).integer() != kTicketVersion) refuse_ticket();
  ShardTicket ticket;
  ticket.id = reader.at("id").text();
  ticket.boot = reader.at("boot").text();
  ticket.host = from_base64(reader.at("host"));
  ticket.staging = from_base64(reader.at("staging"));
  ticket.values = from_base64(reader.at("values"));
  ticket.is_folder = reader.at("is_folder").flag();
  ticket.durable = reader.at("durable").flag();
  ticket.checksums = reader.at("checksums").flag();
  ticket.are_crc32 = reader.at("are_crc32").flag();
  ticket.shares_files = reader.at("shares_files").flag();
  ticket.rank = static_cast<int>(number_below(reader.at("rank"), std::numeric_limits<int>::max()));
  ticket.num_ranks =
      static_cast<int>(number_below(reader.at("num_ranks"), std::numeric_limits<int>::max()));
  if (ticket.num_ranks == 0) refuse_ticket();
  for (const ValueReader& file : reader.at("files").items()) {
    const auto fields = file.items(2);
    ticket.files.push_back({from_base64(fields[0]), fields[1].flag()});
    for (const std::filesystem::path& part : Path(ticket.files.back().path)) {
      if (part == ".." || part == "/") refuse_ticket();
    }
  }
  for (const ValueReader& tensor : reader.at("tensors").items()) {
    const auto fields = tensor.items(5);
    // The file's index is checked below, for boxes that are written: a tensor without elements may
    // have no file.
    ticket.tensors.push_back({fields[0].text(), fields[1].dtype(), fields[2].lengths(),
                              static_cast<std::size_t>(fields[3].count()), fields[4].count()});
  }
  for (const ValueReader& item : reader.at("boxes").items()) {
    const auto fields = item.items(4);
    Box box{number_below(fields[0], ticket.tensors.size()),
            fields[1].flag(),
            {fields[2].lengths(), fields[3].lengths()}};
    const TensorPlace& place = ticket.tensors[box.tensor];
    if (!is_inside(box.box, place.shape)) refuse_ticket();
    const auto whole = formats::byte_box(place.shape, itemsize(place.dtype), box.box);
    if (whole && box.is_written && place.file >= ticket.files.size()) refuse_ticket();
    // byte_box() also returns nullopt for a box without elements. For a box with elements, nullopt
    // means that the size of the tensor in bytes exceeds 63 bits.
    if (!whole && numel_of(box.box.sizes) != 0) refuse_ticket();
    ticket.boxes.push_back(std::move(box));
  }
  return ticket;
} catch (const Error&) {
  refuse_ticket();
}

std::string ShardReceipt::to_text() const {
  std::string text = std::string(kReceiptWord) + " " + id + " " + std::to_string(rank) + " " +
                     std::to_string(num_boxes) + " ";
  text.reserve(text.size() + checksums.size() * kSumDigits);
  for (const std::uint64_t checksum : checksums) text += base::hex16(checksum);
  return text;
}

std::optional<ShardReceipt> ShardReceipt::parse(std::string_view text) {
  const auto take_word = [&] {
    const std::size_t blank = text.find(' ');
    const std::string_view word = text.substr(0, blank);
    text.remove_prefix(blank == std::string_view::npos ? text.size() : blank + 1);
    return word;
  };
  const auto take_number = [&](auto& number) {
    const std::string_view word = take_word();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    return error == std::errc() && end == word.data() + word.size();
  };
  ShardReceipt receipt;
  if (take_word() != kReceiptWord) return std::nullopt;
  receipt.id = take_word();
  if (!take_number(receipt.rank) || !take_number(receipt.num_boxes)) return std::nullopt;
  if (text.size() % kSumDigits != 0) return std::nullopt;
  for (std::size_t at = 0; at < text.size(); at += kSumDigits) {
    const auto checksum = formats::parse_hex16(text.substr(at, kSumDigits));
    if (!checksum) return std::nullopt;
    receipt.checksums.push_back(*checksum);
  }
  return receipt;
}

std::string marker_text(const std::string& id) { return "tenfold staging " + id + "\n"; }

bool has_marker(const os::File& file, const std::string& id) {
  const std::string expected = marker_text(id);
  std::string found(expected.size(), '\0');
  const std::size_t size = file.read_some_at(0, std::as_writable_bytes(std::span(found)));
  return size == found.size() && found == expected;
}

std::string values_name(int rank, bool is_folder) {
  return "values-" + std::to_string(rank) + (is_folder ? "" : ".safetensors");
}

std::string boot_text() {
  std::string text;
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const std::byte byte : os::boot_id()) {
    text += kDigits[std::to_integer<std::size_t>(byte) >> 4U];
    text += kDigits[std::to_integer<std::size_t>(byte) & 15U];
  }
  return text;
}

}  // namespace tenfold::checkpoint
