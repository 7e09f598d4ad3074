/* codec_table.h - the table of codecs. */
#ifndef GW_COMPRESS_CODEC_TABLE_H
#define GW_COMPRESS_CODEC_TABLE_H

/* The only table of codecs: to add a codec, add a line here and a file. The first is the default of the axis.
 * TWO_PASS(name): an owner decodes payloads, adds them and encodes the sum again, so doublesqueeze can wrap it;
 * CODEC(name): any other. */
#define GW_CODECS(CODEC, TWO_PASS)                                                                                     \
    CODEC(none)                                                                                                        \
    CODEC(fp16)                                                                                                        \
    CODEC(bf16)                                                                                                        \
    TWO_PASS(int8)                                                                                                     \
    TWO_PASS(onebit)                                                                                                   \
    TWO_PASS(qsgd)                                                                                                     \
    TWO_PASS(terngrad)                                                                                                 \
    TWO_PASS(topk)                                                                                                     \
    CODEC(randomk)                                                                                                     \
    TWO_PASS(threshold)                                                                                                \
    CODEC(dgc)                                                                                                         \
    CODEC(powersgd)

#endif
