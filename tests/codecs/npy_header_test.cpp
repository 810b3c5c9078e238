#include "codecs/npy_header.hpp"

#include <gtest/gtest.h>

#include <tenfold/error.hpp>

#include <string>

namespace tenfold::codecs {
namespace {

std::string version_1(const std::string& text) {
  std::string bytes = std::string(kNpyMagic) + '\x01' + '\0';
  bytes += static_cast<char>(text.size() & 0xFF);
  bytes += static_cast<char>(text.size() >> 8);
  return bytes + text;
}

std::string error_of(const std::string& text) {
  try {
    parse_npy_header(version_1(text), "x.npy");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(NpyHeader, WritesTheSameBytesAsNumpySave) {
  NpyHeader header;
  header.descr = "<f4";
  header.shape = {2, 3};
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  const std::string expected =
      version_1(text + std::string(128 - 10 - text.size() - 1, ' ') + "\n");
  EXPECT_EQ(write_npy_header(header), expected);
}

TEST(NpyHeader, RoundTrips) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{}, {0}, {7}, {2, 3}, {1, 0, INT64_MAX}}) {
    for (const bool fortran_order : {false, true}) {
      NpyHeader header;
      header.descr = "<c16";
      header.fortran_order = fortran_order;
      header.shape = shape;
      const std::string bytes = write_npy_header(header);
      EXPECT_EQ(bytes.size() % 64, 0U);
      header.data_offset_bytes = bytes.size();
      EXPECT_EQ(parse_npy_header(bytes, "x"), header);
      EXPECT_EQ(parse_npy_header(bytes + "elements", "x"), header);
      EXPECT_EQ(npy_data_offset(bytes.substr(0, kNpyPrefixBytes), "x"), bytes.size());
    }
  }
}

TEST(NpyHeader, WritesVersion2IfVersion1IsTooSmall) {
  NpyHeader header;
  header.descr = "<f4";
  header.shape.assign(30000, 1);
  const std::string bytes = write_npy_header(header);
  EXPECT_EQ(bytes[6], 2);
  EXPECT_EQ(bytes.size() % 64, 0U);
  EXPECT_EQ(parse_npy_header(bytes, "x").shape, header.shape);
}

TEST(NpyHeader, KeepsAStructuredDtypeAsItIsWritten) {
  const NpyHeader header = parse_npy_header(
      version_1("{'descr': [('x', '<f4'), (('a b', 'y'), '<i8', (2, 2))], 'fortran_order': False, "
                "'shape': ()}"),
      "x");
  EXPECT_TRUE(header.is_structured);
  EXPECT_EQ(header.descr, "[('x', '<f4'), (('a b', 'y'), '<i8', (2, 2))]");
}

TEST(NpyHeader, ReportsTheOffsetOfASyntaxError) {
  EXPECT_EQ(error_of("{'descr' '<f4'}"),
            "x.npy: header: not a valid literal: expected \":\", found \"'\" at byte 19");
  EXPECT_EQ(error_of("{'descr': '<f4"),
            "x.npy: header: not a valid literal: expected a quote that ends the string, found the "
            "end at byte 24");
}

TEST(NpyHeader, DoesNotTreatANulAsTheEnd) {
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': ()}";
  EXPECT_EQ(error_of(text + std::string(1, '\0')),
            "x.npy: header: not a valid literal: expected only spaces after the dict, found "
            "\"\\x00\" at byte 63");
}

}  // namespace
}  // namespace tenfold::codecs
