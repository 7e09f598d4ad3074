# cmake -DOUT=FILE.c -DCSV=bench/results/accuracies.csv -P accuracies.cmake: the measured accuracies as an array of a C file.
file(READ "${CSV}" rows)
string(FIND "${rows}" "\n" end)
math(EXPR end "${end} + 1")
string(SUBSTRING "${rows}" ${end} -1 rows) # without the names of the columns
set(word "([^;\n]*)")
set(row "${word};${word};${word};${word};${word};${word};${word};${word};[^\n]*\n")
string(REGEX REPLACE "${row}" "    {\"\\1\", \"\\2\", \\3, \\4, \\5, \"\\6\", \"\\7\", \\8},\n" rows "${rows}")
file(WRITE "${OUT}" "/* Made from ${CSV} by cmake/accuracies.cmake. */
#include \"strategy/accuracy_rows.h\"

const gw_accuracy_row gw_accuracy_rows[] = {
${rows}    {0},
};
")
