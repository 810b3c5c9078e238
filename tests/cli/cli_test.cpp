#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "io/sample_trees.hpp"
#include "json.hpp"
#include "progress_bar.hpp"
#include "run.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"
#include "text.hpp"

namespace tenfold {
namespace {

using test::counting;
using test::difference;
using test::sample_checkpoint;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

struct Result {
  int status = -1;
  std::string out;
  std::string err;
};

/// Runs the program in this process, and captures its output.
Result tenfold_run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "tenfold");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Result result;
  result.status = cli::run(static_cast<int>(arguments.size()), argv.data());
  result.out = testing::internal::GetCapturedStdout();
  result.err = testing::internal::GetCapturedStderr();
  return result;
}

/// Runs the program in a child whose standard output is a terminal of `columns` columns. Returns
/// the final content of the terminal without the progress line, which only long commands print.
std::string shown_on_terminal(int columns, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "tenfold");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int terminal = -1;
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = 24;
  std::fflush(nullptr);  // otherwise the child would also print the buffered output of its parent
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::setenv("NO_COLOR", "1", 1);
    ::_exit(cli::run(static_cast<int>(arguments.size()), argv.data()));
  }
  std::string shown;
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; (count = ::read(terminal, buffer.data(), buffer.size())) > 0;) {
    shown.append(buffer.data(), static_cast<std::size_t>(count));
  }
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  std::erase(shown, '\r');
  constexpr std::string_view kErase = "\x1B[J";
  for (std::size_t at = 0; (at = shown.find(kErase)) != std::string::npos;) {
    const std::size_t newline = shown.rfind('\n', at);
    const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
    shown.erase(begin, at + kErase.size() - begin);
  }
  return shown;
}

/// The lines of `text` that are wider than `columns`.
std::vector<std::string> lines_beyond(std::size_t columns, const std::string& text) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (cli::width_of(line) > columns) found.push_back(line);
  }
  return found;
}

class Cli : public testing::Test {
 protected:
  Cli() {
    ckpt_ = save(sample_checkpoint(), folder_ / "ckpt").string();
    file_ = save(sample_checkpoint(), folder_ / "m.safetensors").string();
  }
  test::TemporaryFolder folder_;
  std::string ckpt_;
  std::string file_;
};

TEST_F(Cli, IngestsTextFilesAndReportsTheResult) {
  const std::string source = (folder_ / "a.csv").string();
  const std::string target = (folder_ / "rows").string();
  std::ofstream(source) << "x,y\n1,a\n0.5,b\n3\n";
  const Result refused = tenfold_run({"ingest", source, target});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.out, IsEmpty());
  EXPECT_THAT(refused.err, HasSubstr("line 4 (row 2): expected 2 fields, found 1"));
  const Result done = tenfold_run({"ingest", source, target, "--on-error", "skip", "--json"});
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(done.err, "tenfold: 1 row omitted: --on-error collect lists it\n");
  EXPECT_THAT(done.out, AllOf(HasSubstr("\"rows\": 2"),
                              HasSubstr("{\"column\": \"x\", \"from\": \"int64\", \"to\": "
                                        "\"float64\"}")));
  EXPECT_EQ(tenfold_run({"ingest", source}).status, 2);
}

TEST_F(Cli, NamesTheReasonWhyASchemaCannotBeRead) {
  const std::string source = (folder_ / "a.csv").string();
  const std::string target = (folder_ / "rows").string();
  std::ofstream(source) << "x\n1\n";
  std::filesystem::create_symlink("loop", folder_ / "loop");
  for (const auto& [schema, message] :
       {std::pair<Path, const char*>{folder_ / "none", "expected a schema as JSON, found no file"},
        {folder_.path(), "cannot be read: "},
        {folder_ / "loop", "cannot be read: "}}) {
    EXPECT_THAT(tenfold_run({"ingest", source, target, "--schema", schema.string()}).err,
                HasSubstr(schema.string() + ": " + message));
  }
}

TEST_F(Cli, IngestsCsvWithTheGivenSeparator) {
  const std::string source = (folder_ / "a.csv").string();
  const std::string target = (folder_ / "rows").string();
  for (const auto& [separator, option] :
       {std::pair{";", ";"}, std::pair{"\t", "\\t"}, std::pair{"|", "|"}}) {
    std::ofstream(source) << "x" << separator << "y\n1" << separator << "a\n";
    const Result refused = tenfold_run({"ingest", source, target});
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.err, HasSubstr(std::string("option separator to \"") + option + "\""));
    const Result done = tenfold_run({"ingest", source, target, "--separator", option});
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(tenfold_run({"ls", target}).out, AllOf(HasSubstr("int64"), HasSubstr("string")));
    std::filesystem::remove_all(target);
  }
  const Result unknown = tenfold_run({"ingest", source, target, "--separator", "ab"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("separator: expected one ASCII character"));
}

TEST_F(Cli, IngestsFilesWithAnyNameInTheGivenFormat) {
  const std::string source = (folder_ / "corpus.txt").string();
  const std::string target = (folder_ / "rows").string();
  std::ofstream(source) << "{\"x\": 1}\n{\"x\": 2}\n";
  const Result refused = tenfold_run({"ingest", source, target});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("set the option format (jsonl, ndjson, json, csv, tsv)"));
  const Result done = tenfold_run({"ingest", source, target, "--format", "jsonl"});
  EXPECT_EQ(done.status, 0);
  EXPECT_THAT(done.out, HasSubstr("2 rows"));
  const Result unknown = tenfold_run({"ingest", source, target, "--format", "xml"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err,
              HasSubstr("format: expected jsonl, ndjson, json, csv or tsv, found \"xml\""));
}

TEST_F(Cli, PrintsItsUsageAndExits2WithoutArguments) {
  const Result result = tenfold_run({});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.out, IsEmpty());
  for (const char* command :
       {"ls", "tree", "stat", "head", "verify", "diff", "convert", "ingest", "bench"}) {
    EXPECT_THAT(result.err, HasSubstr(std::string("\n  ") + command + " "));
  }
}

TEST_F(Cli, PrintsHelpToStandardOutput) {
  const Result help = tenfold_run({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("convert"));
  const Result command_help = tenfold_run({"stat", "--help"});
  EXPECT_EQ(command_help.status, 0);
  EXPECT_THAT(command_help.out, HasSubstr("complex number by its magnitude"));
  const Result version_text = tenfold_run({"--version"});
  EXPECT_EQ(version_text.status, 0);
  EXPECT_EQ(version_text.out, "tenfold " + std::string(version()) + "\n");
}

TEST_F(Cli, HelpFitsIntoEightyColumns) {
  EXPECT_THAT(lines_beyond(80, tenfold_run({"--help"}).out), IsEmpty());
  for (const char* command : {"bench", "checkpoints", "compact", "convert", "diff", "head",
                              "ingest", "ls", "scan", "stat", "tree", "verify"}) {
    const Result help = tenfold_run({command, "--help"});
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_THAT(lines_beyond(80, help.out), IsEmpty()) << command;
  }
}

TEST_F(Cli, ReportsThatADirectoryHasNoSteps) {
  EXPECT_EQ(tenfold_run({"checkpoints", ckpt_}).out, "no steps\n");
}

TEST_F(Cli, NamesWhatItFoundInsteadOfADirectoryOfCheckpoints) {
  EXPECT_EQ(tenfold_run({"checkpoints", file_}).err,
            "tenfold: " + file_ + ": expected a directory of checkpoints, found a file\n");
  EXPECT_THAT(tenfold_run({"checkpoints", folder_ / "none"}).err, HasSubstr(", found none\n"));
  const std::string loop = folder_ / "loop";
  std::filesystem::create_symlink("loop", loop);
  EXPECT_THAT(tenfold_run({"checkpoints", loop}).err, HasSubstr("loop: cannot be examined: "));
}

TEST_F(Cli, RefusesRetentionOptionsWithoutEffect) {
  for (const std::vector<std::string>& options : {std::vector<std::string>{"--keep-every", "2"},
                                                  {"--best", "loss"},
                                                  {"--keep", "1", "--best-max"},
                                                  {"--keep", "1", "--best-to-keep", "2"}}) {
    std::vector<std::string> arguments = {"checkpoints", ckpt_};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Result result = tenfold_run(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr(" requires --"));
  }
}

TEST_F(Cli, Exits2ForAWrongCommandOrOption) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"lss", ckpt_},
                                                    {"ls"},
                                                    {"ls", ckpt_, "--frob"},
                                                    {"head", ckpt_, "epoch", "--rows", "-1"}}) {
    const Result result = tenfold_run(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, StartsWith("tenfold: "));
  }
}

TEST_F(Cli, NamesAnUnknownCommandAndTheNearestOne) {
  EXPECT_EQ(tenfold_run({"lss", "x"}).err,
            "tenfold: unknown command \"lss\"; did you mean \"ls\"?; see `tenfold --help`\n");
  EXPECT_EQ(tenfold_run({"frobnicate"}).err,
            "tenfold: unknown command \"frobnicate\"; see `tenfold --help`\n");
  EXPECT_THAT(tenfold_run({"vreify", "x"}).err, HasSubstr("did you mean \"verify\"?"));
}

TEST_F(Cli, HelpIsAlsoACommand) {
  EXPECT_EQ(tenfold_run({"help"}).out, tenfold_run({"--help"}).out);
  EXPECT_EQ(tenfold_run({"help", "stat"}).out, tenfold_run({"stat", "--help"}).out);
  EXPECT_EQ(tenfold_run({"help"}).status, 0);
  EXPECT_EQ(tenfold_run({"help", "lss"}).status, 2);
}

TEST_F(Cli, NamesTheNumberThatAnOptionExpects) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"head", file_, "epoch", "--rows", "-1"},
       "--rows: expected a whole number from 0 on, found \"-1\""},
      {{"head", file_, "epoch", "--rows", "1.5"},
       "--rows: expected a whole number from 0 on, found \"1.5\""},
      {{"tree", file_, "--depth", "abc"},
       "--depth: expected a whole number from 1 on, found \"abc\""},
      {{"verify", file_, "--threads", "-3"},
       "--threads: expected a whole number from 1 to 256, found \"-3\""},
      {{"diff", file_, file_, "--threads", "0"},
       "--threads: expected a whole number from 1 to 256, found \"0\""},
      {{"verify", file_, "--threads", "257"},
       "--threads: expected a whole number from 1 to 256, found \"257\""},
      {{"bench", file_, "--max-mb", "0"},
       "--max-mb: expected a whole number from 1 to 1000000000, found \"0\""}};
  for (const auto& [arguments, message] : cases) {
    const Result result = tenfold_run(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.err, std::string("tenfold: ") + message + "; see `tenfold " +
                              arguments.front() + " --help`\n");
  }
}

TEST_F(Cli, ReadsNumbersWithLeadingZerosAsDecimal) {
  TensorDict tree;
  tree.set("x", counting({12}));
  const std::string path = save(tree, folder_ / "twelve").string();
  EXPECT_THAT(tenfold_run({"head", path, "x", "--rows", "010"}).out, HasSubstr("2 more rows"));
  EXPECT_THAT(tenfold_run({"head", path, "x", "--rows", "08"}).out, HasSubstr("4 more rows"));
}

TEST_F(Cli, KeepsErrorsOnOneLineForAnyFileName) {
  const Result result = tenfold_run({"ls", folder_ / "a\nb"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("a\\x0ab"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
}

TEST_F(Cli, Exits2ForAMissingPathWithEmptyOutput) {
  for (const char* command : {"ls", "tree", "stat", "verify"}) {
    const Result result = tenfold_run({command, folder_ / "nothing", "--json"});
    EXPECT_EQ(result.status, 2) << command;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, AllOf(StartsWith("tenfold: "), HasSubstr("nothing")));
  }
}

TEST_F(Cli, ListsTensorsAndValues) {
  for (const std::string& path : {ckpt_, file_}) {
    const Result result = tenfold_run({"ls", path});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.out,
              "key                        dtype    shape   bytes\n"
              "model.embed.weight         float32  [4, 3]     48\n"
              "model.head.weight          float32  [4, 3]     48\n"
              "model.head.bias            float32  [4]        16\n"
              "optimizer.state.0.exp_avg  float32  [4, 3]     48\n"
              "optimizer.lr               json     -           3\n"
              "epoch                      json     -           1\n"
              "4 tensors, 160 bytes, 2 JSON values\n");
  }
}

TEST_F(Cli, ListsAsJson) {
  const Result result = tenfold_run({"ls", "--json", ckpt_, "*.bias", "epoch"});
  EXPECT_EQ(result.out,
            "[{\"key\": \"model.head.bias\", \"path\": [\"model\", \"head.bias\"], \"dtype\": "
            "\"float32\", \"shape\": [4], \"bytes\": 16}, {\"key\": \"epoch\", \"path\": "
            "[\"epoch\"], \"dtype\": \"json\", \"shape\": null, \"bytes\": 1}]\n");
}

TEST_F(Cli, NamesNearMatchesOfAnUnknownKey) {
  const Result result = tenfold_run({"ls", ckpt_, "model.head.wieght"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean \"model.head.weight\""));
}

TEST_F(Cli, DrawsTheTree) {
  const Result result = tenfold_run({"tree", ckpt_});
  EXPECT_EQ(result.out, ckpt_ +
                            "  dict\n"
                            "├── model      ordered_dict\n"
                            "│   ├── embed.weight  float32 [4, 3]\n"
                            "│   ├── head.weight   float32 [4, 3]\n"
                            "│   └── head.bias     float32 [4]\n"
                            "├── optimizer  dict\n"
                            "│   ├── state  dict of int keys\n"
                            "│   │   └── 0  dict\n"
                            "│   │       └── exp_avg  float32 [4, 3]\n"
                            "│   └── lr     0.1\n"
                            "└── epoch      3\n");
  EXPECT_EQ(tenfold_run({"tree", ckpt_, "--depth", "1"}).out, ckpt_ +
                                                                  "  dict\n"
                                                                  "├── model      ordered_dict\n"
                                                                  "├── optimizer  dict\n"
                                                                  "└── epoch      3\n");
}

TEST_F(Cli, DrawsTheTreeAsJson) {
  const Result result = tenfold_run({"tree", ckpt_, "--depth", "1", "--json"});
  EXPECT_EQ(result.out, "{\"name\": \"" + ckpt_ +
                            "\", \"children\": [{\"name\": \"model\", \"children\": []}, "
                            "{\"name\": \"optimizer\", \"children\": []}, {\"name\": \"epoch\", "
                            "\"children\": []}]}\n");
}

TEST_F(Cli, ComputesStatistics) {
  const Result result = tenfold_run({"stat", "--json", file_, "model.head.bias"});
  EXPECT_EQ(result.out,
            "[{\"key\": \"model.head.bias\", \"min\": 100.0, \"max\": 103.0, \"mean\": 101.5, "
            "\"std\": 1.118033988749895, \"zeros\": 0, \"nan\": 0, \"inf\": 0}]\n");
  EXPECT_THAT(tenfold_run({"stat", file_}).out, HasSubstr("optimizer.state.0.exp_avg"));
}

TEST_F(Cli, FitsTablesIntoANarrowTerminalWithoutCuttingNumbers) {
  TensorDict other = sample_checkpoint();
  TensorDict deep;
  const std::string long_name(70, 'k');
  const std::vector<float> values = {-1.23456e-5F, 3.45678e-6F, 123456.7F};
  deep.set(long_name, Tensor::from(std::span<const float>(values)));
  deep.set("huge", Tensor::zeros(DType::float32, {1234567}));
  other.set("deep", deep);
  const std::string path = save(other, folder_ / "other").string();
  for (const int columns : {40, 60, 80, 100}) {
    const auto width = static_cast<std::size_t>(columns);
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"stat", path}, {"diff", ckpt_, path}, {"ls", path}}) {
      const std::string shown = shown_on_terminal(columns, command);
      EXPECT_THAT(lines_beyond(width, shown), IsEmpty()) << command.front() << " " << columns;
    }
    const std::string figures = shown_on_terminal(columns, {"stat", path});
    for (const char* figure : {"-1.2346e-05", "1.2346e+05", "1,234,567", "zeros", "nan"}) {
      EXPECT_THAT(figures, HasSubstr(figure)) << columns;
    }
  }
  EXPECT_THAT(tenfold_run({"stat", path}).out, HasSubstr("deep." + long_name));
  EXPECT_THAT(shown_on_terminal(80, {"stat", path}), Not(HasSubstr("deep." + long_name)));
}

TEST(ProgressLine, FitsEveryWidthAndShowsNoBarForAnUnknownTotal) {
  const cli::ProgressState state = {"checksums", 999'900'000'000, 9'999'900'000'000, 3601};
  for (std::size_t columns = 1; columns <= 120; ++columns) {
    const std::string line = cli::progress_line(state, columns);
    EXPECT_LE(cli::width_of(line), columns) << line;
    if (columns >= 16) {
      EXPECT_THAT(line, AllOf(StartsWith("checksums"), HasSubstr("10 %"))) << columns;
    }
  }
  EXPECT_THAT(cli::progress_line(state, 79), AllOf(HasSubstr("█"), HasSubstr(" left")));
  EXPECT_THAT(cli::progress_line(state, 120),
              AllOf(HasSubstr("999.9 GB of 10.0 TB"), HasSubstr("277.7 MB/s")));
  EXPECT_THAT(cli::progress_line({"read", 0, 0, 0}, 79), HasSubstr("0 %"));
  EXPECT_EQ(cli::progress_line({"a\nb", 3'000'000, 0, 2}, 79), "a\\x0ab  3.0 MB  1.5 MB/s");
}

TEST_F(Cli, DoesNotTruncateIfTheOutputIsNotATerminal) {
  TensorDict tree;
  const std::string text(500, 't');
  tree.set("text", Value(text));
  tree.set("wide", counting({2, 300}));
  const std::string a = save(tree, folder_ / "a").string();
  tree.set("text", Value(std::string(40, 'u')));
  const std::string b = save(tree, folder_ / "b").string();
  EXPECT_THAT(tenfold_run({"tree", a}).out, HasSubstr(text));
  EXPECT_THAT(tenfold_run({"diff", a, b}).out, HasSubstr(std::string(40, 'u')));
  EXPECT_THAT(tenfold_run({"head", a, "wide"}).out, AllOf(HasSubstr("599"), Not(HasSubstr("…"))));
}

/// Two complete rows, and one with nulls.
std::string sample_dataset(const test::TemporaryFolder& folder) {
  const std::string source = folder / "rows.jsonl";
  std::ofstream(source)
      << R"({"name": "ann", "age": 40, "w": [0.5, 1.5], "tags": ["a", "bb"], "at": {"x": 1.5}})"
      << "\n"
      << R"({"name": "bob", "age": 20, "w": [2.5], "tags": [], "at": {"x": -2.0}})"
      << "\n"
      << R"({"name": null, "age": null, "w": null, "tags": ["c"], "at": {"x": null}})"
      << "\n";
  const std::string path = folder / "rows";
  ingest({Path(source)}, path);
  return path;
}

TEST_F(Cli, ListsTheColumnsOfADataSet) {
  const std::string path = sample_dataset(folder_);
  EXPECT_EQ(tenfold_run({"ls", path}).out,
            "column  dtype            shape   bytes\n"
            "name    string or null   [3]        33\n"
            "age     int64 or null    [3]        27\n"
            "w       float64 or null  [3, *]     51\n"
            "tags    string           [3, *]     52\n"
            "at.x    float64 or null  [3]        27\n"
            "3 rows, 5 columns, 190 bytes\n");
  EXPECT_EQ(tenfold_run({"ls", path, "ta*", "--json"}).out,
            "[{\"key\": \"tags\", \"path\": [\"tags\"], \"dtype\": \"string\", \"shape\": "
            "[3, null], \"bytes\": 52, \"nullable\": false}]\n");
  const Result unknown = tenfold_run({"ls", path, "nmae"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr(path), HasSubstr("did you mean \"name\"")));
  EXPECT_THAT(tenfold_run({"tree", path}).out, HasSubstr("age.valid"));
}

TEST_F(Cli, PrintsTheFirstRowsOfADataSet) {
  const std::string path = sample_dataset(folder_);
  EXPECT_EQ(tenfold_run({"head", path}).out,
            "row  name   age  w           tags         at.x\n"
            "  0  ann     40  [0.5, 1.5]  [\"a\", \"bb\"]   1.5\n"
            "  1  bob     20  [2.5]       []             -2\n"
            "  2  null  null  null        [\"c\"]        null\n");
  EXPECT_EQ(tenfold_run({"head", path, "age", "--rows", "1"}).out,
            "row  age\n"
            "  0   40\n"
            "… 2 more rows\n");
  EXPECT_EQ(tenfold_run({"head", path, "--rows", "2", "--json"}).out,
            "{\"num_rows\": 3, \"columns\": ["
            "{\"key\": \"name\", \"dtype\": \"string\", \"shape\": [3], \"nullable\": true}, "
            "{\"key\": \"age\", \"dtype\": \"int64\", \"shape\": [3], \"nullable\": true}, "
            "{\"key\": \"w\", \"dtype\": \"float64\", \"shape\": [3, null], \"nullable\": "
            "true}, "
            "{\"key\": \"tags\", \"dtype\": \"string\", \"shape\": [3, null], \"nullable\": "
            "false}, "
            "{\"key\": \"at.x\", \"dtype\": \"float64\", \"shape\": [3], \"nullable\": true}], "
            "\"rows\": ["
            "{\"name\": \"ann\", \"age\": 40, \"w\": [0.5, 1.5], \"tags\": [\"a\", \"bb\"], "
            "\"at.x\": 1.5}, "
            "{\"name\": \"bob\", \"age\": 20, \"w\": [2.5], \"tags\": [], \"at.x\": -2.0}]}\n");
  EXPECT_EQ(tenfold_run({"head", path, "at.x", "--json"}).out,
            "{\"key\": \"at.x\", \"dtype\": \"float64\", \"shape\": [3], \"rows\": [1.5, -2.0, "
            "null]}\n");
  const Result no_key = tenfold_run({"head", ckpt_});
  EXPECT_EQ(no_key.status, 2);
  EXPECT_THAT(no_key.err, HasSubstr("expected KEY, the name of one tensor"));
}

TEST_F(Cli, ExcludesNullsFromTheStatisticsOfADataSet) {
  const std::string path = sample_dataset(folder_);
  EXPECT_EQ(tenfold_run({"stat", path, "age", "w", "name", "--json"}).out,
            "[{\"key\": \"name\", \"min\": null, \"max\": null, \"mean\": null, \"std\": null, "
            "\"zeros\": 0, \"nan\": 0, \"inf\": 0, \"nulls\": 1}, "
            "{\"key\": \"age\", \"min\": 20.0, \"max\": 40.0, \"mean\": 30.0, \"std\": 10.0, "
            "\"zeros\": 0, \"nan\": 0, \"inf\": 0, \"nulls\": 1}, "
            "{\"key\": \"w\", \"min\": 0.5, \"max\": 2.5, \"mean\": 1.5, \"std\": "
            "0.816496580927726, \"zeros\": 0, \"nan\": 0, \"inf\": 0, \"nulls\": 1}]\n");
}

TEST_F(Cli, DistinguishesTheValidityOfAColumnFromAColumnOfThatName) {
  const std::string source = folder_ / "rows.jsonl";
  std::ofstream(source) << R"({"x": 1, "x.valid": true})" << "\n"
                        << R"({"x": null, "x.valid": false})" << "\n"
                        << R"({"x": 3, "x.valid": false})" << "\n";
  const std::string path = folder_ / "rows";
  ingest({Path(source)}, path);
  const Result stat = tenfold_run({"stat", path, "x", "--json"});
  EXPECT_EQ(stat.status, 0) << stat.err;
  EXPECT_THAT(stat.out, AllOf(HasSubstr("\"min\": 1.0, \"max\": 3.0"), HasSubstr("\"nulls\": 1")));
  const Result head = tenfold_run({"head", path, "x", "--json"});
  EXPECT_THAT(head.out, HasSubstr("\"rows\": [1, null, 3]")) << head.err;
}

TEST_F(Cli, OmitsElementsOfAnUnfinishedAppendFromTheStatistics) {
  const Path path = sample_dataset(folder_);
  Dataset growing(path, Mode::write_through);
  growing.append(Dataset(path).rows(0, 1));
  const double element = 1000;
  std::ofstream(path / "%values/w.memmap", std::ios::binary | std::ios::app)
      .write(reinterpret_cast<const char*>(&element), sizeof element);
  EXPECT_THAT(tenfold_run({"stat", path.string(), "w", "--json"}).out,
              HasSubstr("\"min\": 0.5, \"max\": 2.5, "));
}

TEST_F(Cli, MergesStatisticsOfManyRows) {
  const std::string source = folder_ / "many.csv";
  std::ofstream file(source);
  file << "x,y\n";
  for (int i = 0; i < 200'000; ++i) file << (i % 4 == 3 ? "" : std::to_string(i % 4)) << ",1\n";
  file.close();
  const std::string path = folder_ / "many";
  ingest({Path(source)}, path);
  EXPECT_THAT(tenfold_run({"stat", path, "x", "--json"}).out,
              AllOf(HasSubstr("\"min\": 0.0, \"max\": 2.0, \"mean\": 1.0, \"std\": 0.81649658"),
                    HasSubstr("\"zeros\": 50000, \"nan\": 0, \"inf\": 0, \"nulls\": 50000")));
}

TEST_F(Cli, PreservesNonUtf8BytesInJson) {
  const std::string path = save(sample_checkpoint(), folder_ / "a\xff\xc3(").string();
  EXPECT_THAT(tenfold_run({"tree", path, "--depth", "1", "--json"}).out,
              HasSubstr("a\\udcff\\udcc3("));
  TensorDict tree;
  tree.set("lone", Value(std::string("x\xed\xa0\x80y")));
  EXPECT_THAT(tenfold_run({"head", save(tree, folder_ / "lone").string(), "lone", "--json"}).out,
              HasSubstr("\"x\\ud800y\""));
}

TEST(StrictJson, ACounterWithoutItemsIsAnEmptyObject) {
  Value::Special counter;
  counter.type = Value::Special::Type::counter;
  EXPECT_EQ(cli::strict_json(counter), "{}");
  counter.items.emplace_back(Value::Object{{{"a", 1}}});
  EXPECT_EQ(cli::strict_json(counter), "{\"a\": 1}");
}

TEST_F(Cli, PrintsStrictJsonForNanAndInfinities) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf};
  TensorDict tree;
  tree.set("x", Tensor::from(std::span<const float>(values)));
  tree.set("v", Value(std::numeric_limits<double>::quiet_NaN()));
  const std::string path = save(tree, folder_ / "odd").string();
  EXPECT_THAT(tenfold_run({"head", path, "x", "--json"}).out,
              HasSubstr("\"rows\": [null, \"inf\", \"-inf\"]"));
  EXPECT_THAT(tenfold_run({"head", path, "v", "--json"}).out, HasSubstr("\"rows\": [null]"));
  EXPECT_THAT(tenfold_run({"stat", path, "--json"}).out,
              HasSubstr("\"min\": null, \"max\": null, \"mean\": null, \"std\": null, "
                        "\"zeros\": 0, \"nan\": 1, \"inf\": 2"));
}

TEST_F(Cli, PrintsTheFirstRows) {
  EXPECT_EQ(tenfold_run({"head", file_, "model.embed.weight", "--rows", "2"}).out,
            "model.embed.weight  float32 [4, 3]\n"
            "0  0  1  2\n"
            "1  3  4  5\n"
            "… 2 more rows\n");
  EXPECT_EQ(tenfold_run({"head", file_, "model.embed.weight", "--rows", "2", "--json"}).out,
            "{\"key\": \"model.embed.weight\", \"dtype\": \"float32\", \"shape\": [4, 3], "
            "\"rows\": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]}\n");
  EXPECT_EQ(tenfold_run({"head", file_, "epoch"}).out, "epoch  json\n3\n");
}

TEST_F(Cli, PrintsRowsOfEveryRank) {
  TensorDict tree;
  tree.set("scalar", Tensor::from(std::span<const float>(std::array<float, 1>{2.5F}), {}));
  tree.set("cube", counting({2, 2, 2}));
  tree.set("none", Tensor::zeros(DType::float32, {0, 3}));
  tree.set("flat_rows", Tensor::zeros(DType::float32, {3, 0}));
  const std::string path = save(tree, folder_ / "ranks").string();
  EXPECT_EQ(tenfold_run({"head", path, "scalar"}).out, "scalar  float32 []\n2.5\n");
  EXPECT_EQ(tenfold_run({"head", path, "cube"}).out,
            "cube  float32 [2, 2, 2]\n0  [[0, 1], [2, 3]]\n1  [[4, 5], [6, 7]]\n");
  EXPECT_EQ(tenfold_run({"head", path, "none"}).out, "none  float32 [0, 3]\n");
  EXPECT_THAT(tenfold_run({"head", path, "flat_rows", "--json"}).out,
              HasSubstr("\"rows\": [[], [], []]"));
}

TEST_F(Cli, PrintsLongRowsWithoutElements) {
  TensorDict tree;
  tree.set("x", Tensor::zeros(DType::float32, {1, std::int64_t{1} << 60, 0}));
  const std::string path = save(tree, folder_ / "x.safetensors").string();
  EXPECT_THAT(tenfold_run({"head", path, "x"}).out, HasSubstr("\n0  []\n"));
  EXPECT_THAT(tenfold_run({"head", path, "x", "--json"}).out, HasSubstr("\"rows\": [[]]"));
}

TEST_F(Cli, EscapesControlCharactersInRowsOfADataSet) {
  const std::string source = folder_ / "odd.jsonl";
  std::ofstream(source) << R"({"tags": ["\u009b2J\u202eabc"], "x": NaN})" << "\n";
  const std::string path = folder_ / "odd";
  ingest({Path(source)}, path);
  EXPECT_EQ(tenfold_run({"head", path}).out,
            "row  tags                     x\n"
            "  0  [\"\\u009b2J\\u202eabc\"]  nan\n");
}

TEST_F(Cli, PrintsADataSetWithoutColumns) {
  const std::string source = folder_ / "none.jsonl";
  std::ofstream(source).close();
  const std::string path = folder_ / "none";
  ingest({Path(source)}, path);
  EXPECT_EQ(tenfold_run({"head", path}).out, "no columns\n");
  EXPECT_EQ(tenfold_run({"head", path, "--json"}).out,
            "{\"num_rows\": 0, \"columns\": [], \"rows\": []}\n");
}

TEST_F(Cli, HeadRequiresAKeyOfOneTensor) {
  const Result result = tenfold_run({"head", ckpt_, "model"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("\"model.embed.weight\""));
  EXPECT_TRUE(result.err.ends_with("\"?\n")) << result.err;
  TensorDict tree;
  tree.set("none", TensorDict());
  const std::string path = save(tree, folder_ / "empty").string();
  EXPECT_THAT(tenfold_run({"head", path, "none"}).err, HasSubstr("found an empty node"));
}

TEST_F(Cli, VerifiesUndamagedFiles) {
  const Result result = tenfold_run({"verify", ckpt_});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, AllOf(StartsWith("ok: "), HasSubstr(" checksums")));
  EXPECT_THAT(tenfold_run({"verify", ckpt_, "--json"}).out,
              AllOf(StartsWith("{\"ok\": true, \"problems\": [], \"leaves\": "),
                    HasSubstr("\"checksums\": ")));
}

TEST_F(Cli, Exits1ForDamage) {
  std::filesystem::resize_file(file_, std::filesystem::file_size(file_) - 4);
  const Result result = tenfold_run({"verify", file_});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, StartsWith(file_ + ": "));
  EXPECT_THAT(result.err, IsEmpty());
  const Result json = tenfold_run({"verify", file_, "--json"});
  EXPECT_EQ(json.status, 1);
  EXPECT_THAT(json.out, AllOf(StartsWith("{\"ok\": false, \"problems\": [{\"path\": \""),
                              HasSubstr("\"part\": "), HasSubstr("\"what\": ")));
}

TEST_F(Cli, ConvertComparesChecksumsIfRequested) {
  test::write_bytes(
      file_, test::read_bytes(file_).replace(std::filesystem::file_size(file_) - 1, 1, "\x55"));
  const std::string target = folder_ / "copy.safetensors";
  EXPECT_EQ(tenfold_run({"convert", file_, target, "--verify"}).status, 2);
  EXPECT_FALSE(std::filesystem::exists(target));
  EXPECT_EQ(tenfold_run({"convert", file_, target}).status, 0);
}

TEST_F(Cli, ReportsThatNoChecksumsAreStored) {
  const std::string target = folder_ / "plain.safetensors";
  ASSERT_EQ(tenfold_run({"convert", file_, target, "--no-checksums"}).status, 0);
  const Result result = tenfold_run({"verify", target});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, HasSubstr("0 checksums (none stored: only the structure was checked)"));
}

TEST_F(Cli, FindsNoDifferenceBetweenTwoFormats) {
  const Result result = tenfold_run({"diff", ckpt_, file_});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "same: 6 tensors and values, 160 bytes\n");
  EXPECT_EQ(tenfold_run({"diff", ckpt_, file_, "--json"}).out,
            "{\"same\": true, \"added\": [], \"removed\": [], \"changed\": []}\n");
}

TEST_F(Cli, BenchMeasuresReadSpeed) {
  for (const std::string& path : {ckpt_, file_}) {
    const Result result = tenfold_run({"bench", path, "--threads", "1"});
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.out, AllOf(StartsWith("what "), HasSubstr("\nread "), HasSubstr("\ngather "),
                                  HasSubstr("1 thread, rows of 12 bytes")));
    const Result json = tenfold_run({"bench", path, "--json", "--max-mb", "1"});
    EXPECT_THAT(json.out, AllOf(StartsWith("{\"threads\": "), HasSubstr("\"row_bytes\": 12"),
                                HasSubstr("\"warm_limit\": ")));
  }
  EXPECT_EQ(tenfold_run({"bench", ckpt_, "--max-mb", "0"}).status, 2);
}

TEST_F(Cli, ListsDifferencesAndExits1) {
  TensorDict other = sample_checkpoint();
  other["model"].set("head.bias", counting({4}, 101));
  other["model"].set("extra", counting({1}));
  other.set("epoch", Value(4));
  const std::string path = save(other, folder_ / "other").string();
  const Result result = tenfold_run({"diff", ckpt_, path});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out,
            "key              change  what         differ  max abs     rel l2       cosine\n"
            "model.head.bias  values  float32 [4]       4        1  0.0098516  0.999999994\n"
            "epoch            json    3 → 4             -        -          -            -\n"
            "model.extra      added\n"
            "different: 2 changed, 0 removed, 1 added\n");
  const Result json = tenfold_run({"diff", path, ckpt_, "--json", "--atol", "1"});
  EXPECT_EQ(json.status, 1);
  EXPECT_EQ(json.out,
            "{\"same\": false, \"added\": [], \"removed\": [\"model.extra\"], \"changed\": "
            "[{\"key\": \"epoch\", \"kind\": \"json\", \"max_abs\": null, \"rel_l2\": null, "
            "\"cosine\": null}]}\n");
  EXPECT_EQ(tenfold_run({"diff", ckpt_, folder_ / "nothing"}).status, 2);
  EXPECT_EQ(tenfold_run({"diff", ckpt_, file_, "--rtol", "-1"}).status, 2);
}

TEST_F(Cli, Converts) {
  const std::string target = folder_ / "out.safetensors";
  const Result result = tenfold_run({"convert", ckpt_, target, "--keys", "model", "--exclude",
                                     "*.bias", "--rename", "model=net", "--dtype", "float16"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "wrote " + target + ": 2 tensors, 48 bytes, as safetensors file\n");
  const TensorDict converted = load(target);
  EXPECT_THAT(converted["net"].keys(), testing::ElementsAre("embed.weight", "head.weight"));
  EXPECT_EQ(converted.at("net", "embed.weight").dtype(), DType::float16);
  EXPECT_EQ(tenfold_run({"convert", ckpt_, target, "--json"}).out,
            "{\"path\": \"" + target +
                "\", \"leaves\": 4, \"bytes\": 160, \"format\": \"safetensors\"}\n");
}

TEST_F(Cli, WarnsOfAMisspelledSuffixAndPrintsTheFormatWritten) {
  const std::string target = folder_ / "out.safetensor";
  const Result result = tenfold_run({"convert", ckpt_, target});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "wrote " + target + ": 4 tensors, 160 bytes, as memmap folder\n");
  EXPECT_EQ(result.err, "tenfold: warning: " + target +
                            ": suffix \".safetensor\": not the suffix of a format, so a folder is "
                            "written; did you mean \".safetensors\"?\n");
}

TEST_F(Cli, ConvertsIntoShards) {
  const std::string target = folder_ / "out.safetensors.index.json";
  ASSERT_EQ(tenfold_run({"convert", ckpt_, target, "--shard-size", "100 B"}).status, 0);
  EXPECT_EQ(difference(load(target), sample_checkpoint()), "");
  EXPECT_EQ(tenfold_run({"convert", ckpt_, target, "--shard-size", "many"}).status, 2);
}

TEST_F(Cli, RefusesARenameThatMatchesNothing) {
  const Result result = tenfold_run({"convert", ckpt_, folder_ / "out", "--rename", "modle=net"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("nothing is called \"modle\""));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(Cli, EscapesTerminalControlCharactersInKeys) {
  TensorDict tree;
  tree.set("a\x1b[31m\nb", Value(1));
  const std::string path = save(tree, folder_ / "odd").string();
  EXPECT_THAT(tenfold_run({"ls", path}).out, HasSubstr("a\\x1b[31m\\x0ab"));
  EXPECT_THAT(tenfold_run({"ls", path, "--json"}).out, HasSubstr("a\\u001b[31m\\u000ab"));
  EXPECT_THAT(tenfold_run({"ls", path, "x\x1b[31m"}).err, Not(HasSubstr("\x1b")));
  EXPECT_EQ(cli::strict_json(Value(std::string("\u009b2J\u00a0"))), "\"\\u009b2J\u00a0\"");
}

TEST(Printable, EscapesCharactersThatReverseOrHideText) {
  EXPECT_EQ(cli::printable("a\u061cb\u202ec\ufeffd\u2063\u3164\U000e0041é中"),
            "a\\u061cb\\u202ec\\ufeffd\\u2063\\u3164\\U000e0041é中");
  EXPECT_EQ(cli::printable("a\u00adb\ufe0fc\uffa0d\U000e0100"),
            "a\\u00adb\\ufe0fc\\uffa0d\\U000e0100");
}

TEST(CutMiddle, FitsEveryWidth) {
  std::string wide;
  for (int i = 0; i < 20; ++i) wide += "中";
  for (const std::string& text : {wide, "a" + wide, std::string(40, 'x')}) {
    for (std::size_t width = 0; width <= 42; ++width) {
      EXPECT_LE(cli::width_of(cli::cut_middle(text, width)), width) << text;
    }
  }
}

/// The exit status of a shell command in which $tenfold is the program.
int shell(const std::string& command_line) {
  const std::string line = "tenfold='" TENFOLD_PROGRAM "'; " + command_line;
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(Cli, ExitsSilentlyOnAClosedPipe) {
  TensorDict tree;
  for (int i = 0; i < 20000; ++i) tree.set("key" + std::to_string(i), Value(i));
  const std::string path = save(tree, folder_ / "wide.safetensors").string();
  const std::string err = folder_ / "err";
  const std::string status = folder_ / "status";
  EXPECT_EQ(shell("{ \"$tenfold\" ls " + path + " 2>" + err + "; echo $? >" + status +
                  "; } | head -n 1 >/dev/null"),
            0);
  int exited = -1;
  std::ifstream(status) >> exited;
  EXPECT_EQ(exited, 141);  // as shells report SIGPIPE
  EXPECT_EQ(std::filesystem::file_size(err), 0U);
}

TEST_F(Cli, ReportsThatItsOutputCannotBeWritten) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_EQ(shell("\"$tenfold\" ls " + ckpt_ + " >/dev/full 2>" + (folder_ / "err").string()), 2);
  std::ifstream err(folder_ / "err");
  std::string line;
  std::getline(err, line);
  EXPECT_THAT(line, StartsWith("tenfold: standard output: cannot write: "));
}

TEST_F(Cli, Exits2IfStandardErrorIsClosedOrFull) {
  for (const char* errors : {"2>/dev/full", "2>&-"}) {
    EXPECT_EQ(shell(std::string("\"$tenfold\" ls /nowhere ") + errors), 2) << errors;
    EXPECT_EQ(shell(std::string("\"$tenfold\" frobnicate ") + errors), 2) << errors;
    EXPECT_EQ(shell(std::string("\"$tenfold\" ") + errors), 2) << errors;
  }
}

TEST_F(Cli, Exits2IfTheHelpCannotBeWritten) {
  const std::string err = folder_ / "err";
  for (const char* option : {"--help", "--version", "stat --help", "help"}) {
    for (const char* output : {">/dev/full", ">&-"}) {
      EXPECT_EQ(shell(std::string("\"$tenfold\" ") + option + " " + output + " 2>" + err), 2)
          << option << " " << output;
      EXPECT_GT(std::filesystem::file_size(err), 0U);
    }
  }
}

TEST_F(Cli, DoesNotWriteMessagesIntoAFileThatReusesAClosedStream) {
  const std::string target = folder_ / "out.npz";
  EXPECT_EQ(shell("\"$tenfold\" convert " + file_ + " " + target +
                  ".safetensor --keys model >&- 2>&- <&-"),
            2);
  EXPECT_TRUE(verify(target + ".safetensor").ok());
}

TEST_F(Cli, Exits130AfterAnInterruptAndLeavesNothing) {
  TensorDict tree;
  tree.set("x", Tensor::zeros(DType::float32, {1 << 29}));  // 2 GiB, saved as a file of holes
  const std::string path = memmap(tree, folder_ / "large", {.zeros = true}).where();
  const std::string target = folder_ / "out.safetensors";
  // Without --foreground, timeout may send a second SIGINT, which ends the program immediately.
  EXPECT_EQ(shell("timeout --foreground --preserve-status -s INT 0.3 \"$tenfold\" convert " + path +
                  " " + target + " --dtype float64 --threads 1"),
            130);
  EXPECT_FALSE(std::filesystem::exists(target));
  // No temporary file is left, only the inputs: "ckpt", "m.safetensors" and "large".
  const std::filesystem::directory_iterator entries(folder_.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 3);
}

}  // namespace
}  // namespace tenfold
