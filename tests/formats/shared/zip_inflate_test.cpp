#include "formats/shared/zip_inflate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <tenfold/error.hpp>

#include "formats/safetensors/support.hpp"
#include "support/message_of.hpp"
#include "support/zip.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using test::message_of;

using testing::AllOf;
using testing::HasSubstr;

std::string text_of(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size_bytes()};
}

TEST(ZipInflate, ReadsStoredAndDeflatedEntries) {
  const std::string content(1000, 'a');
  for (const int level : {0, 9}) {
    const std::string bytes = zip_of({{"x", content, level}});
    const codecs::ZipInput input = codecs::zip_input("x.zip", std::as_bytes(std::span(bytes)));
    const codecs::ZipDirectory directory = codecs::read_zip_directory(input, {});
    const codecs::ZipEntry& entry = directory.entries.at(0);
    EXPECT_EQ(entry.method == codecs::ZipMethod::deflated, level > 0);
    EXPECT_EQ(text_of(read_entry_into_memory(input, entry, "x.zip", "remedy")), content);
  }
}

TEST(ZipInflate, RefusesADamagedDeflatedEntry) {
  std::string bytes = zip_of({{"x", std::string(1000, 'a'), 9}});
  const auto read = [&] {
    const codecs::ZipInput input = codecs::zip_input("x.zip", std::as_bytes(std::span(bytes)));
    codecs::ZipDirectory directory = codecs::read_zip_directory(input, {});
    directory.entries.at(0).crc32 ^= 1;
    return read_entry_into_memory(input, directory.entries[0], "x.zip", "remedy");
  };
  EXPECT_THAT(message_of(read, ErrorCode::corrupt), HasSubstr("CRC-32"));
}

TEST(ZipInflate, RefusesAnEntryThatIsLargerThanTheAvailableMemory) {
  const codecs::ZipInput input = codecs::zip_input("x.zip", {});
  codecs::ZipEntry entry;
  entry.method = codecs::ZipMethod::deflated;
  for (const bool is_inflated : {true, false}) {
    (is_inflated ? entry.size_bytes : entry.stored_bytes) = std::uint64_t{1} << 62;
    (is_inflated ? entry.stored_bytes : entry.size_bytes) = 7;
    EXPECT_THAT(
        message_of([&] { read_entry_into_memory(input, entry, "x.zip: record \"x\"", "do so"); },
                   ErrorCode::unsupported),
        AllOf(HasSubstr("x.zip: record \"x\": does not fit in memory when inflated: expected "
                        "at most "),
              HasSubstr(" inflated entry, found 4611686018427387911; do so")));
  }
}

}  // namespace
}  // namespace tenfold::test
