//! The scene as a PNG picture.

use super::palette::Color;
use super::scene::{Font, Rectangle, Scene, Text};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster};
use std::io::{self, Write};

/// Writes the scene as a PNG file.
pub fn render(scene: &Scene, output: impl Write) -> io::Result<()> {
    let mut canvas = Canvas::new(scene.width, scene.height);
    for rectangle in &scene.rectangles {
        canvas.fill(rectangle);
    }
    for text in &scene.texts {
        canvas.write(text);
    }
    let mut encoder = png::Encoder::new(output, scene.width, scene.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(io::Error::from)?;
    writer.write_image_data(&canvas.pixels).map_err(io::Error::from)?;
    writer.finish().map_err(io::Error::from)
}

struct Canvas {
    width: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    fn new(width: u32, height: u32) -> Self {
        Self { width: width as usize, pixels: vec![255; width as usize * height as usize * 3] }
    }

    fn fill(&mut self, r: &Rectangle) {
        let Color(red, green, blue) = r.color;
        for y in r.y..r.y + r.height {
            let start = (y as usize * self.width + r.x as usize) * 3;
            let Some(row) = self.pixels.get_mut(start..start + r.width as usize * 3) else { return };
            for pixel in row.chunks_exact_mut(3) {
                pixel.copy_from_slice(&[red, green, blue]);
            }
        }
    }

    fn write(&mut self, text: &Text) {
        let (weight, height) = match text.font {
            Font::Title => (FontWeight::Bold, RasterHeight::Size24),
            Font::Body => (FontWeight::Regular, RasterHeight::Size16),
        };
        for (at, character) in (0..).zip(text.text.chars()) {
            // Pictures hold names of any script; the font does not.
            let Some(glyph) = get_raster(character, weight, height).or_else(|| get_raster('?', weight, height)) else {
                continue;
            };
            let left = text.x as usize + at * text.font.advance() as usize;
            for (y, row) in glyph.rows().enumerate() {
                for (x, &opacity) in row.iter().enumerate() {
                    self.blend(left + x, text.y as usize + y, text.color, opacity);
                }
            }
        }
    }

    fn blend(&mut self, x: usize, y: usize, color: Color, opacity: u8) {
        let start = (y * self.width + x) * 3;
        if x >= self.width {
            return;
        }
        let Some(pixel) = self.pixels.get_mut(start..start + 3) else { return };
        for (below, above) in pixel.iter_mut().zip([color.0, color.1, color.2]) {
            let mixed = u16::from(*below) * u16::from(255 - opacity) + u16::from(above) * u16::from(opacity);
            *below = (mixed / 255) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::model::State;
    use crate::map::palette::Palette;
    use crate::map::{scene, tests::sample};

    #[test]
    fn the_picture_can_be_read_back_and_shows_the_states() {
        let scene = scene::compose(&sample(), "/mnt/data \u{65e5}", &["figures".to_owned()], 640, 400);
        let mut file = Vec::new();
        render(&scene, &mut file).unwrap();
        let mut reader = png::Decoder::new(io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (640, 400));
        for state in State::ALL {
            let Color(r, g, b) = Palette::LIGHT.state(state);
            assert!(pixels.chunks_exact(3).any(|p| p == [r, g, b]), "no pixel shows {state:?}");
        }
    }
}
