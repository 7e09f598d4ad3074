/* chart.c - see chart.h. */
#include "cli/common/chart.h"

#include <math.h>
#include <string.h>

#include "base/file.h"

enum { COLUMNS = 64, ROWS = 16 };

/* The horizontal position of a point, 0 (left) to 1. */
static double across(const gw_chart *c, double x) {
    double span = log(c->x[c->points - 1] / c->x[0]);
    return span > 0 ? log(x / c->x[0]) / span : 0.5;
}

static double up(const gw_chart *c, double y) {
    double part = c->y_max > 0 ? y / c->y_max : 0;
    return part < 0 ? 0 : part > 1 ? 1 : part;
}

/* ---- terminal ---- */

static char letter(int series) { return (char)('a' + series); }

static void plot(const gw_chart *c, char grid[ROWS][COLUMNS + 1]) {
    for (int r = 0; r < ROWS; r++) {
        memset(grid[r], ' ', COLUMNS);
        grid[r][COLUMNS] = 0;
    }
    for (int s = c->series - 1; s >= 0; s--) {
        for (int column = 0, at = 0; column < COLUMNS; column++) {
            double where = (double)column / (COLUMNS - 1);
            while (at + 2 < c->points && across(c, c->x[at + 1]) < where) at++;
            double left = across(c, c->x[at]), right = c->points > 1 ? across(c, c->x[at + 1]) : left;
            double part = right > left ? (where - left) / (right - left) : 0;
            double y = c->points > 1 ? c->y[s][at] + part * (c->y[s][at + 1] - c->y[s][at]) : c->y[s][at];
            grid[(int)lround((1 - up(c, y)) * (ROWS - 1))][column] = letter(s);
        }
    }
}

/* Labels under their points, as many as fit. */
static void draw_labels(const gw_chart *c, FILE *out) {
    char line[COLUMNS + 24];
    int end = 0;
    memset(line, ' ', sizeof line);
    for (int i = 0; i < c->points; i++) {
        int at = (int)lround(across(c, c->x[i]) * (COLUMNS - 1)), length = (int)strlen(c->x_labels[i]);
        if (i && at < end + 1) continue;
        if (at + length >= (int)sizeof line) break;
        memcpy(line + at, c->x_labels[i], (size_t)length);
        end = at + length;
    }
    fprintf(out, "%9s%.*s  %s\n", "", end, line, c->x_title);
}

void gw_chart_draw(const gw_chart *c, FILE *out) {
    char grid[ROWS][COLUMNS + 1];
    plot(c, grid);
    fprintf(out, "%s\n", c->y_title);
    for (int r = 0; r < ROWS; r++) {
        if (r % 5 == 0) fprintf(out, "%7.4g |%s\n", c->y_max * (ROWS - 1 - r) / (ROWS - 1), grid[r]);
        else fprintf(out, "%7s |%s\n", "", grid[r]);
    }
    fprintf(out, "%7s +", "");
    for (int i = 0; i < COLUMNS; i++) fputc('-', out);
    fputc('\n', out);
    draw_labels(c, out);
    for (int s = 0; s < c->series; s++) fprintf(out, "  %c  %s\n", letter(s), c->names[s]);
}

/* ---- SVG ---- */

enum { WIDTH = 860, HEIGHT = 460, LEFT = 70, TOP = 50, PLOT_WIDTH = 740, PLOT_HEIGHT = 300 };

static const char *const colours[GW_CHART_SERIES_MAX] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                         "#e69f00", "#56b4e9", "#555555", "#b8a800"};

static double x_of(const gw_chart *c, double x) { return LEFT + across(c, x) * PLOT_WIDTH; }
static double y_of(const gw_chart *c, double y) { return TOP + (1 - up(c, y)) * PLOT_HEIGHT; }

static void svg_text(FILE *out, double x, double y, const char *anchor, const char *text) {
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    for (; *text; text++) {
        if (*text == '<') fputs("&lt;", out);
        else if (*text == '>') fputs("&gt;", out);
        else if (*text == '&') fputs("&amp;", out);
        else fputc(*text, out);
    }
    fputs("</text>\n", out);
}

static void svg_axes(const gw_chart *c, FILE *out) {
    for (int i = 0; i <= 5; i++) {
        double y = c->y_max * i / 5;
        char text[32];
        snprintf(text, sizeof text, "%.4g", y);
        fprintf(out, "<line class=\"g\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT, LEFT + PLOT_WIDTH,
                y_of(c, y), y_of(c, y));
        svg_text(out, LEFT - 8, y_of(c, y) + 4, "end", text);
    }
    for (int i = 0; i < c->points; i++)
        svg_text(out, x_of(c, c->x[i]), TOP + PLOT_HEIGHT + 20, "middle", c->x_labels[i]);
    svg_text(out, LEFT + PLOT_WIDTH / 2.0, TOP + PLOT_HEIGHT + 40, "middle", c->x_title);
    svg_text(out, LEFT - 50, TOP - 26, "start", c->title);
    svg_text(out, LEFT - 50, TOP - 10, "start", c->y_title);
}

static void svg_curve(const gw_chart *c, int s, FILE *out) {
    fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colours[s]);
    for (int i = 0; i < c->points; i++) fprintf(out, "%.1f,%.1f ", x_of(c, c->x[i]), y_of(c, c->y[s][i]));
    fputs("\"/>\n", out);
    for (int i = 0; i < c->points; i++)
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x_of(c, c->x[i]), y_of(c, c->y[s][i]),
                colours[s]);
    double at = TOP + PLOT_HEIGHT + 62 + 16 * s;
    fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"14\" height=\"3\" fill=\"%s\"/>\n", LEFT, at - 5, colours[s]);
    svg_text(out, LEFT + 20, at, "start", c->names[s]);
}

static void write_svg(const void *ctx, FILE *out) {
    const gw_chart *c = ctx;
    int height = HEIGHT + 16 * c->series;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<style>text{fill:#222}.g{stroke:#ccc}rect.b{fill:#fff}"
            "@media(prefers-color-scheme:dark){text{fill:#ddd}.g{stroke:#444}rect.b{fill:#181818}}</style>\n"
            "<rect class=\"b\" width=\"%d\" height=\"%d\"/>\n",
            WIDTH, height, WIDTH, height);
    svg_axes(c, out);
    for (int s = 0; s < c->series; s++) svg_curve(c, s, out);
    fputs("</svg>\n", out);
}

gw_status gw_chart_svg(const gw_chart *c, const char *path, gw_error *error) {
    return gw_file_replace(path, write_svg, c, error);
}
