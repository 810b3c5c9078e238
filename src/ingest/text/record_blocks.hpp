#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ingest/text/byte_stream.hpp"
#include "ingest/text/source_files.hpp"

namespace tenfold {

/// An allocator that does not zero its memory, because reads fill it.
template <class T>
struct UninitializedAllocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };
  template <class U>
  void construct(U* at) noexcept {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Arguments>
  void construct(U* at, Arguments&&... arguments) {
    ::new (static_cast<void*>(at)) U(std::forward<Arguments>(arguments)...);
  }
};
using TextMemory = std::vector<char, UninitializedAllocator<char>>;

/// The text format, which determines where a record ends.
enum class TextKind : std::uint8_t { json_lines, json_array, csv };

/// Data shared by all blocks of one file.
struct TextFile {
  std::string display;  ///< name of the file in messages
  TextKind kind = TextKind::json_lines;
  char delimiter = ',';              ///< CSV: the field separator
  bool has_known_delimiter = false;  ///< CSV: from the caller or a first line "sep=;"
  char line_end = '\n';              ///< CSV: '\r' if the header ends with it, without a line feed
  std::vector<std::string> header;   ///< CSV: column names
  NaValues na_values;                ///< CSV: fields that mean null
};

/// Consecutive whole records of one file, followed by JsonText::kSlackBytes NULs.
struct Block {
  std::shared_ptr<const TextFile> file;
  std::uint64_t number = 0;      ///< index among the blocks of all files
  std::uint64_t first_line = 1;  ///< line at which the first record of the file begins; the same
                                 ///< number in all blocks of the file
  bool begins_file = false;
  const char* begin = nullptr;
  const char* end = nullptr;

  TextMemory memory;
};

/// One record, [begin, end), and its line. `*end` cannot continue the last token of the record.
struct Record {
  const char* begin = nullptr;
  const char* end = nullptr;
  std::uint64_t line = 0;  ///< line of the record, relative to the start of the block
};

/// Iterates over the records of a block.
class RecordCursor {
 public:
  explicit RecordCursor(const Block& block) : block_(&block), at_(block.begin) {}

  /// Returns false after the last record. Skips blank lines; in CSV, where a line of blanks is a
  /// record, skips only empty lines.
  bool next(Record& record);
  /// Number of lines passed so far; after the last record, the number of lines in the block.
  std::uint64_t num_lines() const noexcept { return line_; }

 private:
  bool next_line(Record& record);
  bool next_item(Record& record);
  bool next_csv(Record& record);

  const Block* block_;
  const char* at_;
  std::uint64_t line_ = 0;
  bool ended_ = false;  ///< the array has ended
};

/// Splits files into blocks of whole records, in order. A record that is larger than a block
/// enlarges the block.
class BlockReader {
 public:
  /// A record that does not end in a buffer of at least this size is refused, because the file
  /// probably has another format. The size of the buffer is doubled until a record ends, so the
  /// last buffer may have almost twice this size.
  static constexpr std::size_t kMaxRecordBytes = std::size_t{1} << 30;

  BlockReader(std::vector<SourceFile> files, std::size_t block_bytes);

  /// Reads the next block. Reuses the memory of `block`. Returns false after the last one.
  ///
  /// Throws Error(corrupt):
  ///
  /// - for damaged or truncated compressed data,
  /// - for a .json array that does not end, or that is followed by anything but blanks,
  /// - for a malformed header,
  /// - for CSV records that end with line feeds after a header that ends with a carriage return
  ///   only, and
  /// - for a record that is too long (see kMaxRecordBytes).
  ///
  /// Throws Error(invalid_argument):
  ///
  /// - for duplicate names in a header,
  /// - if the file and the caller name different separators, and
  /// - if neither names one, for a header that contains another separator more often than the
  ///   default one.
  bool next(Block& block);

  /// Number of bytes read from files.
  std::uint64_t num_read() const;

 private:
  bool open_next_file();
  void fill(TextMemory& memory, std::size_t size);
  const char* last_end(const char* begin, const char* end);
  bool begin_array(const char*& begin, const char* end);
  void expect_blanks(const char* begin, const char* end);
  bool begin_file(const char*& begin, const char* end);
  void read_records(TextMemory& memory, const char*& begin, const char*& end);
  bool take_header(const char*& begin, const char* end);
  void use_separator(char named);
  bool skip_blank_lines(const char*& begin, const char* end);
  bool find_line_end(const char* begin, const char* end);
  void refuse_line_feeds(const char* begin, const char* end) const;
  std::uint64_t count_lines(const char* begin, const char* end) const;

  std::vector<SourceFile> files_;
  std::size_t block_bytes_;
  std::size_t next_file_ = 0;
  std::unique_ptr<ByteStream> stream_;
  std::shared_ptr<TextFile> file_;
  bool begins_ = false;  ///< no block of the file was returned yet
  bool at_end_ = true;   ///< the stream has no more bytes
  bool array_ended_ = false;
  std::vector<char> rest_;  ///< start of the next record, already read
  std::uint64_t line_ = 1;  ///< line at which the records of the file start
  std::uint64_t num_blocks_ = 0;
  std::uint64_t num_read_ = 0;  ///< number of bytes read from finished files
};

/// True for an ASCII character that may separate the fields of a CSV record.
bool is_csv_separator(char c);

/// A field of a CSV record.
struct CsvField {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool is_quoted = false;
  bool has_escapes = false;  ///< contains doubled quotes
  std::string_view text() const { return {begin, static_cast<std::size_t>(end - begin)}; }
};

/// Parses the field at `at`. Advances `at` past the delimiter or, after the last field, sets `at`
/// to null. Returns null if the field is well-formed; otherwise a description of what was expected.
const char* take_csv_field(const char*& at, const char* end, char delimiter, CsvField& field);

/// One past the record that starts at `begin`, including its line end; null if it does not end
/// before `end`.
const char* end_of_csv_record(const char* begin, const char* end, char delimiter,
                              char line_end = '\n');

}  // namespace tenfold
